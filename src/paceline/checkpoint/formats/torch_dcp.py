"""torch's distributed checkpoints (DCP): a directory with .metadata, a pickle, and __RANK_N.distcp files.

Each .distcp file is a sequence of torch.save archives, one per slice of a tensor; .metadata says which slice is where. The
pickle is read as torch_zip reads weights: its classes become inert records, nothing is executed, and torch is not needed.
"""

from __future__ import annotations

import io
import pickle
import re
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Dict, List, Tuple, Type

from paceline.checkpoint.formats import torch_zip
from paceline.checkpoint.tensor_files import FileRange, SourceFile
from paceline.checkpoint.tensors.dtypes import DType, named_in_torch
from paceline.checkpoint.tensors.tensor_index import StoredTensor
from paceline.checkpoint.tensors.tensor_slice import Shape, TensorSlice
from paceline.core.errors import FormatError, PacelineError, UsageError
from paceline.core.zip_strict import zip_strict

FORMAT = "dcp"
METADATA = ".metadata"
MAX_METADATA_BYTES = 1 << 30
_MAX_OPERATIONS = 200_000_000
"""Of the pickle; about 80 describe one slice."""
_RANK = re.compile(r"__(\d{1,7})_\d{1,7}\.distcp")
_NUMBERED = re.compile(r"(.*?)(\d{1,12})/")
_METADATA_MODULES = ("torch.distributed.", "torch.serialization", "pathlib")
NamePath = Tuple[object, ...]


@dataclass(frozen=True)
class StoredItem:
    """A slice of a tensor, or (slice None) an object that is not a tensor, in a .distcp file."""

    file: str
    start: int
    length: int
    slice: TensorSlice | None = None


@dataclass(frozen=True)
class DcpTensor:
    dtype: DType
    shape: Shape
    items: List[StoredItem]


@dataclass(frozen=True)
class DcpIndex:
    """Content of .metadata."""

    tensors: Dict[str, DcpTensor]
    objects: Dict[str, StoredItem]
    """Entries that are not tensors, such as the hyperparameters of an optimizer."""
    paths: Dict[str, NamePath]
    """Flat name → keys in the nested dictionary that was saved."""


def find(url: str, keys: Collection[str]) -> tuple[str, tuple[str, ...]] | None:
    """The directory (with a slash, or "") whose .metadata to read, and notes on the choice; None: no DCP checkpoint."""
    if METADATA in keys:
        return "", ()
    folders = sorted(key[: -len(METADATA)] for key in keys if key.endswith(f"/{METADATA}"))
    if not folders:
        return None
    if len(folders) == 1:
        return folders[0], ()
    numbered = [match for folder in folders if (match := _NUMBERED.fullmatch(folder))]
    if len(numbered) < len(folders) or len({match[1] for match in numbered}) > 1:
        raise UsageError(f"{url}: holds several checkpoints", hint=f"pass one of {', '.join(folders[:4])}")
    newest = max(numbered, key=lambda match: int(match[2]))[0]
    return newest, (f"using {newest[:-1]}, the newest of {len(folders)} checkpoints",)


def rank_of(key: str) -> int:
    match = _RANK.fullmatch(key.rpartition("/")[2])
    return int(match[1]) if match else 0


def read(data: bytes, where: str) -> DcpIndex:
    try:
        torch_zip.check_operations(data, _MAX_OPERATIONS)
        return _index(_Inert(data).load(), where)
    except FormatError:
        raise
    except (
        pickle.UnpicklingError,
        EOFError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        IndexError,
        RecursionError,
        OverflowError,
        MemoryError,
    ) as error:
        raise FormatError(f"{where}: cannot be read ({type(error).__name__}: {str(error)[:120]})") from None


def stored_tensor(file: SourceFile, name: str, tensor: DcpTensor, item: StoredItem) -> StoredTensor:
    """The tensor inside the archive of an item."""
    if item.start < 0 or item.length < 0 or item.start + item.length > file.size:
        raise FormatError(
            f"{file.name}: {name} is at bytes {item.start:,} to {item.start + item.length:,}, the file has {file.size:,}"
        )
    found = torch_zip.index(FileRange(file, item.start, item.length)).tensors
    stored = found.get("")
    if stored is None or item.slice is None or (stored.dtype, stored.shape) != (tensor.dtype, item.slice.shape):
        raise FormatError(
            f"{file.name}: what is at byte {item.start:,} is not the slice of {name} that {METADATA} lists"
        )
    extents = tuple((item.start + at, length) for at, length in stored.extents)
    return StoredTensor(name, stored.dtype, stored.shape, extents, stored.layout_strides)


# -- .metadata ---------------------------------------------------------------------------------------------------------


class _Record:
    """An object of the pickle: its class by name, the arguments it was made of, its state."""

    def __init__(self, *args: object) -> None:
        self.args = args

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def get(self, name: str) -> Any:
        state = getattr(self, "state", {})
        return state.get(name) if isinstance(state, dict) else None


class _Inert(pickle.Unpickler):
    """Resolves only names of torch's metadata, each to a class that does nothing."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self._classes: dict[str, Type[_Record]] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch", "Size"):
            return tuple
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module == "torch" and (dtype := named_in_torch(name)) is not None:
            return dtype
        if module.startswith(_METADATA_MODULES) and "." not in name:
            return self._classes.setdefault(name, type(name, (_Record,), {}))
        raise pickle.UnpicklingError(f"{module}.{name} is not allowed in {METADATA}; files with code are not read")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError(f"persistent objects are not allowed in {METADATA}")


def _index(metadata: Any, where: str) -> DcpIndex:
    if not isinstance(metadata, _Record) or type(metadata).__name__ != "Metadata":
        raise FormatError(f"{where}: not the metadata of a torch checkpoint")
    items: dict[str, dict[Shape | None, StoredItem]] = {}
    for key, info in metadata.get("storage_data").items():
        start = key.get("offset")
        if info.get("transform_descriptors"):
            raise PacelineError(
                f"{where}: its files are compressed ({info.get('transform_descriptors')[0]})",
                hint="save without extensions of the storage writer",
            )
        item = StoredItem(_file_name(info.get("relative_path")), _size(info.get("offset")), _size(info.get("length")))
        items.setdefault(str(key.get("fqn")), {})[None if start is None else _shape(start)] = item
    tensors, objects = {}, {}
    for name, entry in metadata.get("state_dict_metadata").items():
        held = items.get(name, {})
        if type(entry).__name__ == "BytesStorageMetadata":
            if held:
                objects[name] = next(iter(held.values()))
        else:
            tensors[str(name)] = _tensor(str(name), entry, held)
    paths = metadata.get("planner_data")
    return DcpIndex(tensors, objects, _paths(paths) if isinstance(paths, Mapping) else {})


def _tensor(name: str, entry: _Record, held: Mapping[Shape | None, StoredItem]) -> DcpTensor:
    shape, items = _shape(entry.get("size")), []
    for chunk in entry.get("chunks"):
        part = TensorSlice(_shape(chunk.get("offsets")), _shape(chunk.get("sizes")))
        inside = len(part.start) == len(part.shape) == len(shape) and all(
            at + extent <= whole for at, extent, whole in zip_strict(part.start, part.shape, shape)
        )
        if not inside:
            raise ValueError(f"{name}: {part} does not fit into {list(shape)}")
        item = held.get(part.start)
        if item is not None:
            items.append(StoredItem(item.file, item.start, item.length, part))
    return DcpTensor(_dtype(name, entry.get("properties")), shape, items)


def _dtype(name: str, properties: _Record) -> DType:
    state = properties.state
    found = state.get("dtype") if isinstance(state, dict) else state[0]
    if not isinstance(found, DType):
        raise ValueError(f"{name}: no element type")
    return found


def _paths(given: Mapping[Any, Any]) -> Dict[str, NamePath]:
    return {
        str(name): path
        for name, path in given.items()
        if isinstance(path, tuple) and all(isinstance(part, (str, int)) for part in path)
    }


def _file_name(value: object) -> str:
    name = str(value)
    if not name or name.startswith("/") or ".." in name.split("/"):
        raise ValueError(f"{name[:80]!r} is no file of the checkpoint")
    return name


def _shape(value: Any) -> Shape:
    return tuple(_size(extent) for extent in value)


def _size(value: object) -> int:
    if not isinstance(value, int) or not 0 <= value < 1 << 62:
        raise ValueError(f"{value!r} is no size")
    return int(value)
