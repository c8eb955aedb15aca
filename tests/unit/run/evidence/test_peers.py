"""Files of a rank against those of its peers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paceline.formats.base import RankRecording, RecordingSection, Sink
from paceline.run.evidence.file_ends import cut_off, same_content
from paceline.run.evidence.files import FileGaps
from paceline.run.evidence.peers import (
    conflicting_identities,
    copied_files,
    files_of_ranks,
    guessed_identities,
    missing_files,
)
from paceline.storage.file_tree import File, Tree


def nothing(sink: Sink) -> None:
    """Reads nothing."""


def file(path: Path, content: bytes) -> File:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return File(path.name, path, len(content), 0)


def recording(rank: int, *names: str, table: str = "kernels", assumed: bool = False) -> RankRecording:
    sections = tuple(
        RecordingSection(
            name, frozenset({table}), (File(f"{rank}/{name}", Path(f"/none/{rank}/{name}"), 9, 0),), nothing
        )
        for name in names
    )
    return RankRecording("made", rank, f"{rank}", sections, rank_assumed=assumed)


def missing(*recordings: RankRecording) -> list[tuple[tuple[int, ...], str, bool]]:
    return [(gap.ranks, gap.message, gap.core) for gap in missing_files(files_of_ranks(recordings))]


def test_a_file_that_most_ranks_have_is_missing_on_the_others() -> None:
    ranks = [recording(rank, "a.csv", "b_1.csv") for rank in range(3)] + [recording(3, "a.csv")]
    assert missing(*ranks) == [((3,), "no b_#.csv, which 3 of 4 ranks have", True)]


def test_files_of_a_few_ranks_are_not_expected_of_all() -> None:
    assert missing(recording(0, "a.csv", "b.csv"), recording(1, "a.csv", "b.csv"), *few()) == []


def few() -> list[RankRecording]:
    return [recording(rank, "a.csv") for rank in (2, 3)]


def test_of_two_ranks_sections_are_compared_because_names_may_hold_the_host() -> None:
    assert missing(recording(0, "a.csv", "b.csv"), recording(1, "a.csv")) == [
        ((1,), "no b.csv, which the other rank has", True)
    ]


def test_of_two_ranks_a_file_that_a_section_lacks_is_missing() -> None:
    both, one = (steps_recording(rank, *names) for rank, names in enumerate((("a.csv", "b.json"), ("b.json",))))
    assert missing(both, one) == [((1,), "no a.csv, which the other rank has", True)]
    hosts = (steps_recording(rank, name) for rank, name in enumerate(("host_a.json", "host_b.json")))
    assert missing(*hosts) == []


def steps_recording(rank: int, *names: str) -> RankRecording:
    """One section of several files."""
    files = tuple(File(f"{rank}/{name}", Path(f"/none/{rank}/{name}"), 9, 0) for name in names)
    return RankRecording("made", rank, f"{rank}", (RecordingSection("steps", frozenset({"steps"}), files, nothing),))


def test_files_beside_the_core_tables_are_told_apart() -> None:
    ranks = [recording(rank, "m.csv", table="memory") for rank in range(3)]
    assert missing(*ranks, RankRecording("made", 3, "3", ()))[0][2] is False


def test_fewer_files_than_two_thirds_of_the_ranks_have() -> None:
    ranks = [recording(rank, "t_1.json", "t_2.json") for rank in range(3)] + [recording(3, "t_1.json")]
    assert missing(*ranks) == [((3,), "fewer files t_#.json than the 2 of most ranks", True)]
    stages = [recording(rank, *(f"t_{n}.json" for n in range(1 + rank // 2))) for rank in range(4)]
    assert missing(*stages) == []


def test_guessed_numbers_matter_where_ranks_can_be_confused() -> None:
    assert guessed_identities([recording(0, "a.csv", assumed=True)]) == []
    [gap] = guessed_identities([recording(0, "a.csv", assumed=True), recording(1, "a.csv")])
    assert (gap.kind, gap.ranks) == ("identity", (0,))


def timed(rank: int, content: File) -> RankRecording:
    section = RecordingSection("kernels", frozenset({"kernels"}), (content,), nothing)
    return RankRecording("made", rank, str(rank), (section,))


def test_two_ranks_never_measure_the_same_times(tmp_path: Path) -> None:
    times = [file(tmp_path / f"{rank}" / "k_0.csv", b"%d" % (rank % 2) * 300) for rank in range(3)]
    [gap] = copied_files(files_of_ranks(timed(rank, times[rank]) for rank in range(3)))
    assert (gap.kind, gap.ranks) == ("conflict", (0, 2))


def test_short_files_and_descriptions_may_agree(tmp_path: Path) -> None:
    short = [file(tmp_path / f"{rank}" / "k.csv", b"1" * 9) for rank in range(2)]
    graph = [file(tmp_path / f"{rank}" / "framework_raw_0.csv", b"1" * 300) for rank in range(2)]
    for files in (short, graph):
        assert copied_files(files_of_ranks(timed(rank, files[rank]) for rank in range(2))) == []


def test_equal_samples_are_confirmed_by_the_whole_content(tmp_path: Path) -> None:
    head = b"a" * 20_000
    files = [file(tmp_path / str(n), head + bytes([n // 2]) + head[:9_000]) for n in range(3)]
    assert [[one.path.name for one in group] for group in same_content(files)] == [["0", "1"]]


@pytest.mark.parametrize(
    ("name", "content", "is_cut"),
    [
        ("a.csv", b"a,b\n1,2\n", False),
        ("a.csv", b"a,b\r\n1,2\r\n", False),
        ("a.csv", b"a,b\n1,2", True),
        ("a.json", b'[{"a": 1}]\n\n', False),
        ("a.json", b'[{"a": 1', True),
        ("iter1.trace", b'{"a": 1}', False),
        ("iter1.trace", b'{"a": 1', True),
        ("a.csv", b"", False),  # its reader reports an empty file
        ("a.bin", b"1", False),
    ],
)
def test_files_end_as_their_writers_end_them(tmp_path: Path, name: str, content: bytes, is_cut: bool) -> None:
    assert bool(cut_off(file(tmp_path / name, content).path, len(content))) is is_cut


def test_a_ring_of_files_misses_none(tmp_path: Path) -> None:
    """The recorder begins new files and removes old ones, on one rank a moment earlier than on another."""
    names = [f"{rank}/{name}" for rank in range(4) for name in ("steps_1.csv", "steps_2.csv", "stall_9.txt")]
    held = [file(tmp_path / name, b"%d\n" % number * 300) for number, name in enumerate(names[:-2])]
    files = [File(name, each.path, each.size, 0) for name, each in zip(names, held, strict=False)]
    for ring, kinds in ((True, []), (False, ["missing"])):
        recordings = [
            RankRecording(
                "made", rank, str(rank), (RecordingSection("log", frozenset({"steps"}), of, nothing),), ring=ring
            )
            for rank in range(4)
            if (of := tuple(each for each in files if each.relative.startswith(f"{rank}/steps")))
        ]
        found = FileGaps(Tree(tmp_path, tuple(files)), tuple(recordings), local=True).found
        assert [gap.kind for gap in found] == kinds


def test_only_local_files_are_looked_into(tmp_path: Path) -> None:
    cut = file(tmp_path / "k.csv", b"a,b\n1,2")
    sections = [(0, timed(0, cut).sections[0]), (None, timed(0, cut).sections[0])]
    assert FileGaps(Tree(Path(), ()), (), local=False).cut_off_in(sections) == []
    [gap] = FileGaps(Tree(Path(), ()), (), local=True).cut_off_in(sections)
    assert (gap.kind, gap.ranks, gap.file) == ("cut", (0,), "k.csv")
    cut.path.unlink()
    assert FileGaps(Tree(Path(), ()), (), local=True).cut_off_in(sections) == []


def test_names_that_contradict_the_rank_are_a_conflict() -> None:
    said = replace(recording(1, "a.db"), conflicts=("is of rank 7 by its name",))
    [gap] = conflicting_identities([recording(0, "a.db"), said])
    assert (gap.kind, gap.ranks, gap.message) == ("conflict", (1,), "1: is of rank 7 by its name")


def test_a_table_that_the_peers_databases_have_is_missing() -> None:
    whole = [replace(recording(rank, "a.db"), contents=frozenset({"table META_DATA"})) for rank in range(3)]
    lacking = replace(whole[2], contents=frozenset())
    assert missing(*whole[:2], lacking) == [((2,), "no table META_DATA, which 2 of 3 ranks have", True)]
    assert missing(whole[1], lacking) == [((2,), "no table META_DATA, which the other rank has", True)]
