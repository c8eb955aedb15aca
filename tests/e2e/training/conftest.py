"""An S3 server per test process for what training uploads; no credentials, home or cache of the user's."""

from support.storage.fixtures import bucket, faulty, own_places, proxy, s3
from support.training.fixtures import no_launcher

__all__ = ["bucket", "faulty", "no_launcher", "own_places", "proxy", "s3"]
