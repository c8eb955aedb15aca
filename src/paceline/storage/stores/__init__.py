"""Stores: one interface (base.py) for local directories, S3 and OBS buckets and directories on SSH hosts."""
