"""Fixtures of these tests, shared with others in tests/support."""

from support.storage.fixtures import bucket, faulty, hosts, own_places, proxy, s3, ssh_hosts

__all__ = ["bucket", "faulty", "hosts", "own_places", "proxy", "s3", "ssh_hosts"]
