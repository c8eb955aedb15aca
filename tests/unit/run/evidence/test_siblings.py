"""Files beside those that are read: what one kind lacks, and what is much smaller than its siblings."""

from __future__ import annotations

from pathlib import Path

from paceline.formats.base import RankRecording, RecordingSection, Sink
from paceline.run.evidence.siblings import sibling_gaps
from paceline.storage.file_tree import File, Tree

MINDINSIGHT = [f"profiler/{kind}_{rank}.txt" for kind in ("flops", "queue", "point") for rank in range(4)]
OWN = [f"node{rank}_pt/OUTPUT/{kind}" for kind in ("kernels.csv", "op_statistic.csv") for rank in range(4)]


def nothing(sink: Sink) -> None:
    """Reads nothing."""


def gaps(names: dict[str, int], *, local: bool = False, root: Path = Path("/none")) -> list[tuple[str, str]]:
    files = tuple(sorted(File(name, root / name, size, 0) for name, size in names.items()))
    recordings = []
    for rank in range(4):
        directory = f"node{rank}_pt" if any(name.startswith("node") for name in names) else "profiler"
        read = tuple(
            file for file in files if file.relative in (f"profiler/flops_{rank}.txt", f"{directory}/OUTPUT/kernels.csv")
        )
        section = RecordingSection("read", frozenset({"kernels"}), read, nothing)
        recordings.append(RankRecording("made", rank, directory, (section,)))
    return [(gap.kind, gap.message) for gap in sibling_gaps(Tree(root, files), recordings, local=local)]


def sizes(names: list[str], size: int = 900) -> dict[str, int]:
    return dict.fromkeys(names, size)


def test_a_whole_recording_has_no_gap() -> None:
    assert gaps(sizes(MINDINSIGHT)) == []
    assert gaps(sizes(OWN)) == []


def test_a_kind_lacks_what_most_others_have() -> None:
    lacking = sizes([name for name in MINDINSIGHT if name != "profiler/point_2.txt"])
    assert gaps(lacking) == [("missing", "no profiler/point_#.txt of 2, unlike other files beside it")]
    assert gaps(lacking | {"profiler/point_9.txt": 900}) == gaps(lacking)  # renamed
    of_two = sizes([name for name in MINDINSIGHT if name not in ("profiler/point_2.txt", "profiler/point_3.txt")])
    assert gaps(of_two) == []  # of the first rank of each host, say


def test_a_file_of_a_ranks_own_directory_is_missing() -> None:
    lacking = sizes([*OWN, *[f"node{rank}_pt/OUTPUT/api.csv" for rank in (0, 1, 3)]])
    assert gaps(lacking) == [("missing", "no */OUTPUT/api.csv of node2_pt, unlike other files beside it")]


def test_a_file_much_smaller_than_its_siblings_was_cut_off() -> None:
    whole = sizes(MINDINSIGHT)
    message = "has 600 bytes, those of other ranks 900: it seems to be cut off"
    assert gaps(whole | {"profiler/point_2.txt": 600}) == [("cut", message)]
    assert gaps(whole | {"profiler/point_2.txt": 700}) == []
    # Siblings that differ among themselves say nothing.
    assert gaps(whole | {"profiler/point_2.txt": 600, "profiler/point_1.txt": 1200}) == []


def test_a_smaller_json_file_that_has_its_end_was_not_cut_off(tmp_path: Path) -> None:
    names = [
        f"profiler/{kind}_{rank}.{end}" for kind, end in (("flops", "txt"), ("point", "json")) for rank in range(4)
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("[" + " " * (498 if "point_2" in name else 898) + "]")
    found = {name: (tmp_path / name).stat().st_size for name in names}
    assert gaps(found, local=True, root=tmp_path) == []
    (tmp_path / "profiler/point_2.json").write_text(" " * 500)
    assert [kind for kind, _ in gaps(found, local=True, root=tmp_path)] == ["cut", "cut"], "by its size and its end"


def test_files_that_nobody_reads_end_as_their_writers_end_them(tmp_path: Path) -> None:
    for name in OWN:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a,b\n1,2\n")
    (tmp_path / "node2_pt/OUTPUT/op_statistic.csv").write_text("a,b\n1,2")
    assert gaps(sizes(OWN, size=7), local=True, root=tmp_path) == [("cut", "is cut off")]
