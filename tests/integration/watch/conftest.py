"""The same servers as the storage tests."""

from support.storage.fixtures import bucket, own_places, s3

__all__ = ["bucket", "own_places", "s3"]
