"""Directory trees for transfer tests, and their content for comparison."""

from __future__ import annotations

import random
from pathlib import Path

from paceline.storage.stored_file import StoredFile
from paceline.storage.stores.open_store import open_store
from paceline.storage.transfer.retry import Backoff
from paceline.storage.transfer.transfer import TransferOptions
from paceline.storage.transfer.transfer_pool import TransferLimits

QUICK = TransferOptions(
    limits=TransferLimits(workers=8, backoff=Backoff(first_wait=0.01, longest_wait=0.2, patience=60))
)
"""The default patience with shorter waits between attempts."""
IMPATIENT = TransferOptions(
    limits=TransferLimits(workers=4, backoff=Backoff(first_wait=0.01, longest_wait=0.02, patience=0.1))
)
MIB = 1 << 20
ODD_NAMES = ("a b.txt", "ü#%+&=.csv", "中文/步.json", "deep/er/est/x", "quote'\"$(x).txt", "-dash", "empty")


def write_tree(root: Path, *, large: int = 0, small: int = 0, seed: int = 1) -> Path:
    """Files of random bytes: odd names, `small` files of 20 kB, one file slightly larger than `large` MiB."""
    chance = random.Random(seed)
    for name in ODD_NAMES:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"" if name == "empty" else chance.randbytes(chance.randrange(1, 3000)))
    for number in range(small):
        path = root / f"many/{number // 50}/{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(chance.randbytes(20_000))
    if large:
        (root / "large.bin").write_bytes(chance.randbytes(large * MIB + 12_345))
    return root


def content(root: Path) -> dict[str, bytes]:
    """All files below a directory, hidden ones included."""
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def visible(root: Path) -> dict[str, bytes]:
    """All files except partial ones."""
    return {name: data for name, data in content(root).items() if not name.endswith(".paceline-part")}


def stored(url: str) -> dict[str, StoredFile]:
    """All files of a store by key."""
    store = open_store(url)
    try:
        return {item.key: item for item in store.list_files()}
    finally:
        store.close()
