"""The same servers as the storage tests."""

from storage.conftest import bucket, faulty, hosts, own_places, proxy, s3, ssh_hosts

__all__ = ["bucket", "faulty", "hosts", "own_places", "proxy", "s3", "ssh_hosts"]
