"""Stores (local directories, S3 and OBS buckets, SSH hosts) and transfers between them.

Importing this package loads no client library: obstore, asyncssh and esdk-obs-python are imported with the first store
that needs them (pip install 'paceline[storage]').
"""
