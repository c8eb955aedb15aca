"""Directories to move, and whether they arrived."""

from __future__ import annotations

import random
from pathlib import Path

from paceline.storage.engine import Speed
from paceline.storage.opening import open_store
from paceline.storage.retry import Backoff
from paceline.storage.store import Item
from paceline.storage.transfer import Options

QUICK = Options(speed=Speed(workers=8, backoff=Backoff(first=0.01, most=0.2, patience=60)))
"""Tries as long as anybody, waits less between tries."""
IMPATIENT = Options(speed=Speed(workers=4, backoff=Backoff(first=0.01, most=0.02, patience=0.1)))
MIB = 1 << 20
ODD_NAMES = ("a b.txt", "ü#%+&=.csv", "中文/步.json", "deep/er/est/x", "quote'\"$(x).txt", "-dash", "empty")


def write_tree(root: Path, *, large: int = 0, small: int = 0, seed: int = 1) -> Path:
    """Files of random bytes: odd names, `small` of 20 kB, one large of so many MiB and a bit."""
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
    """Everything below a directory that a user sees, hidden files included."""
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def visible(root: Path) -> dict[str, bytes]:
    """Without what is on its way."""
    return {name: data for name, data in content(root).items() if not name.endswith(".paceline-part")}


def stored(url: str) -> dict[str, Item]:
    """What a place holds."""
    store = open_store(url)
    try:
        return {item.key: item for item in store.items()}
    finally:
        store.close()
