"""Plug Paceline into what people train with; each module imports its framework, and none is imported by another.

mindformers    registers ObsMonitor, CheckpointMonitor, ProfileMonitor and RecorderMonitor in MindFormers' registry
transformers   a callback for Hugging Face's Trainer
lightning      a callback for Lightning's Trainer
"""
