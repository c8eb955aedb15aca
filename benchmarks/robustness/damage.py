"""Ways to damage the files of a recording; each returns False where it does not apply to the file."""

from __future__ import annotations

import gzip
import os
import random
import re
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType

Damage = Callable[[Path, random.Random], bool]
"""Damage a file in place."""
BOM = b"\xef\xbb\xbf"
BOMB_BYTES = 64 << 20


def link_tree(source: Path, target: Path) -> None:
    """A copy whose files are hard links: damage must replace a file, never write into it."""
    shutil.copytree(source, target, copy_function=os.link)


def replace_bytes(path: Path, content: bytes) -> bool:
    path.unlink()
    path.write_bytes(content)
    return True


def class_of(path: Path) -> str:
    """The name with its numbers left out: the same file of all ranks."""
    name = path.name
    return "#" + name[name.index(".pt.trace.json") :] if ".pt.trace.json" in name else re.sub(r"\d+", "#", name)


# -- the five kinds of the ablation -----------------------------------------------------------------------------------


def missing(path: Path, _: random.Random) -> bool:
    path.unlink()
    return True


def cut(path: Path, _: random.Random) -> bool:
    content = path.read_bytes()
    return len(content) > 1 and replace_bytes(path, content[: len(content) // 2])


def duplicated(path: Path, _: random.Random) -> bool:
    """A copy beside it, as a browser or a careless hand makes it."""
    shutil.copyfile(path, path.with_name(f"{path.stem} (1){path.suffix}"))
    return True


def renamed(path: Path, _: random.Random) -> bool:
    """Its first number becomes another; a name without numbers gets a suffix."""
    name = re.sub(r"\d+", lambda number: str(int(number[0]) + 7), path.name, count=1)
    path.rename(path.with_name(name if name != path.name else path.name + ".bak"))
    return True


def swapped(path: Path, other: Path) -> bool:
    """Exchange the contents of two files; equal ones are no damage."""
    mine, theirs = path.read_bytes(), other.read_bytes()
    if mine == theirs:
        return False
    replace_bytes(path, theirs)
    return replace_bytes(other, mine)


ABLATIONS: Mapping[str, Damage] = MappingProxyType(
    {"missing": missing, "cut": cut, "duplicated": duplicated, "renamed": renamed}
)

# -- more kinds for the mutation harness ------------------------------------------------------------------------------


def cut_anywhere(path: Path, chance: random.Random) -> bool:
    content = path.read_bytes()
    return len(content) > 1 and replace_bytes(path, content[: chance.randrange(len(content))])


def cut_at_line(path: Path, chance: random.Random) -> bool:
    lines = _plain(path).splitlines(keepends=True)
    return len(lines) > 2 and _write(path, b"".join(lines[: chance.randrange(1, len(lines))]))


def empty(path: Path, _: random.Random) -> bool:
    return replace_bytes(path, b"")


def flip_bytes(path: Path, chance: random.Random) -> bool:
    content = bytearray(path.read_bytes())
    for _ in range(min(8, len(content))):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    return bool(content) and replace_bytes(path, bytes(content))


def zero_block(path: Path, chance: random.Random) -> bool:
    """A block of zeros, as a file system leaves it behind after a crash."""
    content = bytearray(path.read_bytes())
    begin = chance.randrange(max(1, len(content)))
    content[begin : begin + 4096] = bytes(len(content[begin : begin + 4096]))
    return bool(content) and replace_bytes(path, bytes(content))


def random_bytes(path: Path, chance: random.Random) -> bool:
    return replace_bytes(path, chance.randbytes(min(65536, path.stat().st_size + 1)))


def byte_order_mark(path: Path, _: random.Random) -> bool:
    return path.suffix in (".json", ".csv", ".txt", ".trace") and replace_bytes(path, BOM + path.read_bytes())


def windows_lines(path: Path, _: random.Random) -> bool:
    return path.suffix in (".csv", ".txt") and replace_bytes(path, path.read_bytes().replace(b"\n", b"\r\n"))


def drop_line(path: Path, chance: random.Random) -> bool:
    lines = _plain(path).splitlines(keepends=True)
    if len(lines) < 3:
        return False
    del lines[chance.randrange(1, len(lines))]
    return _write(path, b"".join(lines))


def repeat_line(path: Path, chance: random.Random) -> bool:
    lines = _plain(path).splitlines(keepends=True)
    if len(lines) < 3:
        return False
    lines.insert(place := chance.randrange(1, len(lines)), lines[place])
    return _write(path, b"".join(lines))


def _change_numbers(new: Callable[[random.Random, bytes], bytes]) -> Damage:
    def damage(path: Path, chance: random.Random) -> bool:
        content = _plain(path)
        numbers = list(re.finditer(rb"(?<=[:,\s])-?\d+(?:\.\d+)?(?=[,\s}\]])", content[: 4 << 20]))
        if not numbers:
            return False
        for number in sorted(chance.sample(numbers, min(5, len(numbers))), key=lambda each: -each.start()):
            content = content[: number.start()] + new(chance, number[0]) + content[number.end() :]
        return _write(path, content)

    return damage


def huge_cell(path: Path, _: random.Random) -> bool:
    content = _plain(path)
    head, line, rest = content.partition(b"\n")
    return path.suffix == ".csv" and bool(rest) and _write(path, head + line + b"x" * (20 << 20) + b"," + rest)


def deep_nesting(path: Path, _: random.Random) -> bool:
    return ".json" in path.name and _write(path, b'{"traceEvents":' + b"[" * 200_000)


def not_utf8(path: Path, chance: random.Random) -> bool:
    content = _plain(path)
    place = chance.randrange(max(1, len(content)))
    return path.suffix in (".json", ".csv", ".txt") and _write(path, content[:place] + b"\xff\xfe" + content[place:])


def gzip_bomb(path: Path, _: random.Random) -> bool:
    return path.suffix == ".gz" and replace_bytes(path, gzip.compress(bytes(BOMB_BYTES)))


def rename_column(path: Path, chance: random.Random) -> bool:
    head, line, rest = _plain(path).partition(b"\n")
    names = head.split(b",")
    if path.suffix != ".csv" or len(names) < 2:
        return False
    names[chance.randrange(len(names))] = b"Other"
    return _write(path, b",".join(names) + line + rest)


def drop_table(path: Path, chance: random.Random) -> bool:
    return _in_database(path, chance, "DROP TABLE {table}")


def empty_table(path: Path, chance: random.Random) -> bool:
    return _in_database(path, chance, "DELETE FROM {table}")


def endless_view(path: Path, chance: random.Random) -> bool:
    return _in_database(
        path,
        chance,
        "DROP TABLE {table}",
        "CREATE VIEW {table} AS WITH RECURSIVE c(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM c) SELECT * FROM c",
    )


def _in_database(path: Path, chance: random.Random, *statements: str) -> bool:
    if path.suffix != ".db":
        return False
    replace_bytes(path, path.read_bytes())
    with closing(sqlite3.connect(path)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1").fetchall()
        table = '"' + chance.choice(tables)[0] + '"'
        for statement in statements:
            connection.execute(statement.format(table=table))
        connection.commit()
    return True


MUTATIONS: Mapping[str, Damage] = MappingProxyType(
    {
        **ABLATIONS,
        "cut anywhere": cut_anywhere,
        "cut at a line": cut_at_line,
        "empty": empty,
        "flipped bits": flip_bytes,
        "block of zeros": zero_block,
        "random bytes": random_bytes,
        "byte order mark": byte_order_mark,
        "windows lines": windows_lines,
        "line dropped": drop_line,
        "line repeated": repeat_line,
        "numbers negative": _change_numbers(lambda _, number: b"-" + number.lstrip(b"-")),
        "numbers huge": _change_numbers(lambda _, __: b"9" * 30),
        "numbers text": _change_numbers(lambda _, __: b'"N/A"'),
        "numbers nan": _change_numbers(lambda _, __: b"NaN"),
        "huge cell": huge_cell,
        "deep nesting": deep_nesting,
        "not UTF-8": not_utf8,
        "gzip bomb": gzip_bomb,
        "column renamed": rename_column,
        "table dropped": drop_table,
        "table emptied": empty_table,
        "endless view": endless_view,
    }
)


def _plain(path: Path) -> bytes:
    content = path.read_bytes()
    try:
        return gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError):
        return content


def _write(path: Path, content: bytes) -> bool:
    return replace_bytes(path, gzip.compress(content, 1) if path.suffix == ".gz" else content)
