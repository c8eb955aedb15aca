"""Operators that MindSpore ran on a CPU, which the profilers of several generations record."""

FILES = ("cpu_op_*.csv", "cpu_op_execute_timestamp_*.txt", "cpu_ms_memory_record_*.txt")
"""Patterns of its file names."""
