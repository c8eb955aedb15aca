"""Raise the limit of CANN's hccl_parser wheel, which stops after 500 communication operators per card.

MindSpore calls `hccl_parse_op` without a number, so that the default of its parameter `num` is the limit; the function also
refuses any larger number. Both are changed in the source inside the wheel; every other byte stays.
"""

from __future__ import annotations

import ast
import base64
import csv
import hashlib
import io
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.core.atomic_write import atomic_write_path
from paceline.core.errors import UsageError

FUNCTION, PARAMETER = "hccl_parse_op", "num"
_MOST_SOURCE = 16 << 20
"""Bytes of a wheel's member that are read; the parser's are some kilobytes."""


@dataclass(frozen=True)
class RaisedLimit:
    """What was changed in which module of the wheel."""

    module: str
    old: int
    new: int
    checks: int
    """Comparisons `num > old` that were raised with it."""


def raise_limit(wheel: Path, limit: int, target: Path) -> RaisedLimit:
    """Write to `target` the wheel with `limit` as the most communication operators that its parser reads."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = {info: _content(archive, info, wheel) for info in archive.infolist()}
    except (OSError, zipfile.BadZipFile) as error:
        reason = getattr(error, "strerror", None) or str(error)
        hint = "example: hccl_parser-0.1-py3-none-any.whl"
        raise UsageError(f"{wheel}: not a readable wheel: {reason}", hint=hint) from error
    info, (source, done) = _parser_module(wheel, members, limit)
    members[info] = source
    record = next((each for each in members if each.filename.endswith(".dist-info/RECORD")), None)
    if record is None:
        raise UsageError(f"{wheel}: not a wheel: it has no RECORD")
    members[record] = _updated_record(members[record], {info.filename: source})
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write_path(target) as path, zipfile.ZipFile(path, "w") as archive:
        for each, content in members.items():
            archive.writestr(each, content)
    return done


def pre_start_lines(wheel: str) -> tuple[str, str]:
    """What ma-pre-start.sh needs to install the wheel over the image's own, before ModelArts starts the training."""
    return (
        f"sudo pip install ${{LOCAL_DIR}}/${{WORK_DIR}}/{wheel} --force-reinstall",
        "export PYTHONPATH=/usr/local/ma/python3.7/lib/python3.7/site-packages:$PYTHONPATH",
    )


def _content(archive: zipfile.ZipFile, info: zipfile.ZipInfo, wheel: Path) -> bytes:
    if info.file_size > _MOST_SOURCE:
        raise UsageError(f"{wheel}: {info.filename} has {info.file_size:,} bytes: not the hccl_parser wheel")
    return archive.read(info)


def _parser_module(
    wheel: Path, members: dict[zipfile.ZipInfo, bytes], limit: int
) -> tuple[zipfile.ZipInfo, tuple[bytes, RaisedLimit]]:
    for info, content in members.items():
        if info.filename.endswith(".py") and FUNCTION.encode() in content and (done := _raised(info, content, limit)):
            return info, done
    raise UsageError(
        f"{wheel}: no function {FUNCTION}(…, {PARAMETER}=…) in it",
        hint="in a CANN package the wheel is tools/hccl_parser-0.1-py3-none-any.whl",
    )


def _raised(info: zipfile.ZipInfo, source: bytes, limit: int) -> tuple[bytes, RaisedLimit] | None:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return None
    function = next(
        (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == FUNCTION), None
    )
    default = _default(function) if function else None
    if function is None or default is None:
        return None
    checks = [number for number in _upper_bounds(function) if number.value < limit]
    raised = RaisedLimit(info.filename, default.value, limit, len(checks))
    return _with_numbers(source, [default, *checks], limit), raised


@dataclass(frozen=True)
class _Number:
    """An integer in the source: its value, line (from 0) and bytes in that line."""

    value: int
    line: int
    start: int
    end: int


def _number(node: ast.expr) -> _Number | None:
    if isinstance(node, ast.Constant) and type(node.value) is int and node.end_col_offset is not None:
        return _Number(node.value, node.lineno - 1, node.col_offset, node.end_col_offset)
    return None


def _default(function: ast.FunctionDef) -> _Number | None:
    named = function.args.args[len(function.args.args) - len(function.args.defaults) :]
    pairs = [*zip(named, function.args.defaults), *zip(function.args.kwonlyargs, function.args.kw_defaults)]
    return next((_number(default) for argument, default in pairs if argument.arg == PARAMETER and default), None)


def _upper_bounds(function: ast.FunctionDef) -> Iterator[_Number]:
    """N of `num > N` and `num >= N`: beyond it the function refuses to work."""
    for node in ast.walk(function):
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Name) and node.left.id == PARAMETER:
            for operator, right in zip(node.ops, node.comparators):
                found = _number(right)
                if found and isinstance(operator, (ast.Gt, ast.GtE)):
                    yield found


def _with_numbers(source: bytes, numbers: Sequence[_Number], limit: int) -> bytes:
    lines = source.splitlines(keepends=True)
    for number in sorted(numbers, key=lambda each: (each.line, each.start), reverse=True):
        line = lines[number.line]
        lines[number.line] = line[: number.start] + str(limit).encode() + line[number.end :]
    return b"".join(lines)


def _updated_record(record: bytes, changed: dict[str, bytes]) -> bytes:
    """RECORD lists path, hash and size of every file: pip checks them."""
    rows = list(csv.reader(io.StringIO(record.decode())))
    for row in rows:
        if row and row[0] in changed:
            content = changed[row[0]]
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            row[1:] = [f"sha256={digest}", str(len(content))]
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue().encode()
