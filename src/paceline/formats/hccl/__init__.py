"""What HCCL records of each execution of a collective: task traces, hccl_raw CSV files and tasks."""
