"""MindSpore's dataset pipeline (MindData), which the profilers of several generations record."""

FILES = (
    "pipeline_profiling_*.json",
    "minddata_*.csv",
    "minddata_*.json",
    "minddata_*.txt",
    "dataset.csv",
    "device_queue_profiling_*.txt",
    "dataset_iterator_profiling_*.txt",
)
"""Patterns of its file names."""
