"""From a file to its index, by content."""

from __future__ import annotations

from paceline.checkpoint import ckpt, safetensors, torch_zip
from paceline.checkpoint.files import SourceFile
from paceline.checkpoint.tensors import Container
from paceline.errors import FormatError

SUFFIXES = (".ckpt", ".safetensors", ".pt", ".pth", ".bin")


def open_container(file: SourceFile) -> Container:
    """Zip archives are torch's, a length and a brace safetensors; the rest must be .ckpt."""
    if not file.size:
        raise FormatError(f"{file.name}: is empty", file=file.path)
    head = bytes(file.read(0, min(10, file.size)))
    if head.startswith(torch_zip.MAGIC):
        return torch_zip.index(file)
    if head[8:9] == b"{" or file.name.endswith(".safetensors"):
        return safetensors.index(file)
    if head.startswith(b"\x80"):
        raise FormatError(f"{file.name}: is a plain pickle, which could run anything", file=file.path)
    return ckpt.index(file)
