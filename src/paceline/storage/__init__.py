"""Places that hold files (directories, buckets, other hosts), and moving files between them.

Importing this loads no client library: obstore, asyncssh and esdk-obs-python come with the first store that needs
them (pip install 'paceline[storage]').
"""
