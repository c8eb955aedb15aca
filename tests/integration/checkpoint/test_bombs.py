"""Small files that would cost gigabytes or minutes: refused in one sentence, in little time and memory."""

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

MOST_SECONDS = 600  # ten on a quiet machine; tests run beside others
MOST_BYTES = 512 << 20


def torch_file(path: Path, pickled: bytes, *, byteorder: bytes = b"little", compress: bool = False) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickled, zipfile.ZIP_DEFLATED if compress else None)
        archive.writestr("archive/byteorder", byteorder, zipfile.ZIP_DEFLATED if len(byteorder) > 16 else None)
        archive.writestr("archive/data/0", b"\0" * 64)
    return path


def shared_dictionaries(path: Path) -> Path:
    content: dict[str, Any] = {"w": {}}
    for _ in range(28):
        content = {"a": content, "b": content}
    return torch_file(path, pickle.dumps(content, protocol=2))


def dictionary_in_itself(path: Path) -> Path:
    content: dict[str, Any] = {}
    content["self"] = content
    return torch_file(path, pickle.dumps(content, protocol=2))


def large_byteorder(path: Path) -> Path:
    return torch_file(path, pickle.dumps({}, protocol=2), byteorder=b"l" * (600 << 20))


def compressed_pickle(path: Path) -> Path:
    return torch_file(path, b"\x80\x02" + b"N0" * (100 << 20) + b"}.", compress=True)


def endless_operations(path: Path) -> Path:
    return torch_file(path, b"\x80\x02" + b"N0" * (20 << 20) + b"}.")


def long_names(path: Path) -> Path:
    content: dict[str, Any] = {}
    for _ in range(60):
        content = {"k" * 1000: content, "l": content}
    return torch_file(path, pickle.dumps(content, protocol=2))


def expanded_view(path: Path) -> Path:
    out = io.BytesIO()
    out.write(b"\x80\x02}X\x01\x00\x00\x00wctorch._utils\n_rebuild_tensor_v2\n")
    out.write(b"((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x10tQ")
    out.write(b"K\x00J\x00\x00\x00\x40J\x10\x00\x00\x00\x86K\x00K\x00\x86tRs.")
    return torch_file(path, out.getvalue())


def million_tensors(path: Path) -> Path:
    entries = (f'"t{i}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}' for i in range(1_000_000))
    header = ("{" + ",".join(entries) + "}").encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    return path


def _message(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def _empty_tensor(name: bytes) -> bytes:
    return _message(1, _message(1, name) + _message(2, b"\x08\x00" + _message(2, b"Float32") + _message(3, b"")))


def many_tensors(path: Path) -> Path:
    path.write_bytes(b"".join(_empty_tensor(b"%d" % number) for number in range(300_000)))
    return path


def many_parts(path: Path) -> Path:
    path.write_bytes(_empty_tensor(b"w") * 300_000)
    return path


def long_shape(path: Path) -> Path:
    header = json.dumps({"t": {"dtype": "F32", "shape": [0] * 30_000_000, "data_offsets": [0, 0]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    return path


# The peak of the program's own memory: ru_maxrss would count pytest's, from before the program was loaded.
INSPECT = """
import re, sys
from pathlib import Path
from paceline.cli.main import main
try:
    main()
finally:
    print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
"""
BOMBS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "shared.pt": (shared_dictionaries, "hold one another"),
    "itself.pt": (dictionary_in_itself, "hold one another"),
    "names.pt": (long_names, "hold one another"),
    "byteorder.pt": (large_byteorder, "little-endian"),
    "compressed.pt": (compressed_pickle, "not a torch file"),
    "operations.pt": (endless_operations, "operations"),
    "expanded.pt": (expanded_view, "expanded view"),
    "million.safetensors": (million_tensors, "more than 250,000 tensors"),
    "tensors.ckpt": (many_tensors, "more than 250,000 tensors"),
    "parts.ckpt": (many_parts, "more than 8,192 parts"),
    "shape.safetensors": (long_shape, "more than 250,000 tensors"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_in_one_sentence(tmp_path: Path, name: str) -> None:
    make, said = BOMBS[name]
    file = make(tmp_path / name)
    done = subprocess.run(
        [sys.executable, "-c", INSPECT, "checkpoint", "inspect", str(file)],
        capture_output=True,
        text=True,
        timeout=MOST_SECONDS,
    )
    assert done.returncode == 1, done.stderr
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert int(done.stdout.split()[-1]) * 1024 < MOST_BYTES
