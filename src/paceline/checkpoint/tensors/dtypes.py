"""Element types, by MindSpore's and safetensors' names. Weights are copied as bytes: only the width matters."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DType:
    name: str
    """Name in .ckpt files."""
    safetensors: str
    bytes: int


_TYPES = (
    DType("str", "", 1),  # UTF-32 text without a shape
    DType("Bool", "BOOL", 1),
    DType("UInt8", "U8", 1),
    DType("Int8", "I8", 1),
    DType("Int4", "I8", 1),  # two numbers per byte; marked in the metadata of safetensors files
    DType("", "F8_E5M2", 1),
    DType("", "F8_E4M3", 1),
    DType("", "F8_E8M0", 1),
    DType("Int16", "I16", 2),
    DType("UInt16", "U16", 2),
    DType("Float16", "F16", 2),
    DType("BFloat16", "BF16", 2),
    DType("Int32", "I32", 4),
    DType("UInt32", "U32", 4),
    DType("Float32", "F32", 4),
    DType("", "C64", 8),
    DType("Float64", "F64", 8),
    DType("Int64", "I64", 8),
    DType("UInt64", "U64", 8),
)
"""In the order of safetensors: its files hold the last of these first."""
BYTES = _TYPES[2]
INT4 = "Int4"
TEXT = "str"
_BY_NAME = {each.name: each for each in _TYPES if each.name}
_BY_SAFETENSORS = {each.safetensors: each for each in _TYPES if each.safetensors and each.name != INT4}
_NAMES_OF_TORCH = {
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu",
    "C64": "complex64",
}
_TORCH_NAMES = {
    each: _NAMES_OF_TORCH.get(each.safetensors, each.name.lower()) for each in _TYPES if each.name not in (INT4, TEXT)
}
_BY_TORCH = {name: each for each, name in _TORCH_NAMES.items()}


def named(name: str) -> DType | None:
    """The type with this MindSpore name."""
    return _BY_NAME.get(name)


def named_in_safetensors(name: str) -> DType | None:
    return _BY_SAFETENSORS.get(name)


def named_in_torch(name: str) -> DType | None:
    """
    >>> named_in_torch("bfloat16").name
    'BFloat16'
    """
    return _BY_TORCH.get(name)


def torch_name(dtype: DType) -> str | None:
    """None: torch has no such type."""
    return _TORCH_NAMES.get(dtype)


def sort_order(dtype: DType) -> int:
    """Position of a type in the sort order of safetensors."""
    return _TYPES.index(dtype)


def label(dtype: DType) -> str:
    return dtype.name or dtype.safetensors
