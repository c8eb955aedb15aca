"""Detect the format of a tensor file by content and read its index."""

from __future__ import annotations

from paceline.checkpoint.formats import ckpt, safetensors, torch_zip
from paceline.checkpoint.tensor_files import SourceFile
from paceline.checkpoint.tensors.tensor_index import Container
from paceline.core.errors import FormatError


def open_container(file: SourceFile) -> Container:
    """Zip archives are torch files, a length and a brace mean safetensors; the rest must be .ckpt."""
    if not file.size:
        raise FormatError(f"{file.name}: empty file", file=file.path)
    head = bytes(file.read(0, min(10, file.size)))
    if head.startswith(torch_zip.MAGIC):
        return torch_zip.index(file)
    if head[8:9] == b"{" or file.name.endswith(".safetensors"):
        return safetensors.index(file)
    if head.startswith(b"\x80"):
        raise FormatError(
            f"{file.name}: plain pickle files are not read, because they can execute code", file=file.path
        )
    return ckpt.index(file)
