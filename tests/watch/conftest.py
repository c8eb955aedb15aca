"""The same servers as the storage tests."""

from storage.conftest import bucket, own_places, s3

__all__ = ["bucket", "own_places", "s3"]
