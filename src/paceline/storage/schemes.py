"""URL schemes and the stores that serve them: ours, and those other packages register in group `paceline.stores`.

A plug-in is a class or function that takes a `StorageUrl` and returns a `Store` (stores/base.py):

    [project.entry-points."paceline.stores"]
    hdfs = "my_package.hdfs:HdfsStore"
"""

from __future__ import annotations

from paceline.core.plugins import other_plugins

STORES_GROUP = "paceline.stores"
BUILT_IN_STORES = {
    "file": "paceline.storage.stores.local:open_local_store",
    "obs": "paceline.storage.stores.s3:open_bucket",
    "s3": "paceline.storage.stores.s3:open_bucket",
    "ssh": "paceline.storage.stores.ssh:open_ssh_store",
}
"""The same as in pyproject.toml (a test compares them). Training jobs may have Paceline only on their PYTHONPATH, where
its entry points do not exist (docs/decisions/140), and no command on our own stores pays for reading metadata."""


def is_known_scheme(scheme: str) -> bool:
    return scheme in BUILT_IN_STORES or scheme in other_plugins(STORES_GROUP)


def known_schemes() -> list[str]:
    return sorted({*BUILT_IN_STORES, *other_plugins(STORES_GROUP)})
