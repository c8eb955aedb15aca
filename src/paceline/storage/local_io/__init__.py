"""Writes to local disks: direct I/O, batches synced together, translation of operating system errors."""
