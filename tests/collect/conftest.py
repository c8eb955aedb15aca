"""The same servers as the storage tests."""

from storage.conftest import bucket, hosts, own_places, s3, ssh_hosts

__all__ = ["bucket", "hosts", "own_places", "s3", "ssh_hosts"]
