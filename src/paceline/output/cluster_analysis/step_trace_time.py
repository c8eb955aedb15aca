"""cluster_step_trace_time.csv: µs per step and rank, then per pipeline stage."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paceline.run.run import Run

_STEP_COLUMNS = {
    "Computing": "computing",
    "Communication(Not Overlapped)": "exposed",
    "Overlapped": "coalesce(overlapped, communication - exposed)",
    "Communication": "coalesce(communication, exposed + overlapped)",
    "Free": "coalesce(free, duration - computing - exposed)",
    "Stage": "duration - coalesce(bubble, 0)",
    "Bubble": "bubble",
    "Communication(Not Overlapped and Exclude Receive)": "exposed - coalesce(bubble, 0)",
    "Preparing": "preparing",
}


def write_steps(run: Run, path: Path) -> int:
    """Rank rows, then stage rows where pipeline stages are known. What is unknown stays empty."""
    names = ", ".join(f"{sql} AS c{i}" for i, sql in enumerate(_STEP_COLUMNS.values()))
    rows = run.connection.execute(
        f"SELECT step, rank, {names} FROM steps WHERE coalesce(computing, exposed, free) IS NOT NULL ORDER BY rank, step"
    ).fetchall()
    if not rows:
        return 0
    # "Preparing" came with later versions: a file without it is a whole file.
    kept = [
        i for i, name in enumerate(_STEP_COLUMNS) if name != "Preparing" or any(row[2 + i] is not None for row in rows)
    ]
    places = _parallel_places(run)
    header = ["Step", "Type", "Index", *(list(_STEP_COLUMNS)[i] for i in kept)]
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(header + (["DP Index", "PP Index", "TP Index"] if places else []))
        for step, rank, *values in rows:
            shown = [values[i] for i in kept]
            out.writerow([_blank(step), "rank", rank, *_micros(shown), *places.get(rank, ())])
        for step, members, values in _stageread_rows(run, rows):
            shown = [values[i] for i in kept]
            out.writerow([_blank(step), "stage", str(members), *_micros(shown), *(["NA"] * 3 if places else [])])
    return len(rows)


def _stageread_rows(run: Run, rows: list[tuple[Any, ...]]) -> Iterator[tuple[int, tuple[int, ...], list[int | None]]]:
    """(step, ranks, maximum of each column) for every stage, when there is more than one."""
    stage = dict(run.connection.execute("SELECT rank, stage FROM ranks WHERE stage IS NOT NULL").fetchall())
    if len(set(stage.values())) < 2:
        return
    members: dict[int, set[int]] = defaultdict(set)
    found: dict[tuple[int, Any], list[list[int | None]]] = defaultdict(list)
    for step, rank, *values in rows:
        if rank in stage:
            members[stage[rank]].add(rank)
            found[stage[rank], step].append(values)
    for (number, step), lists in sorted(found.items(), key=lambda entry: (entry[0][0], entry[0][1] or 0)):
        columns = zip(*lists, strict=True)
        yield (
            step,
            tuple(sorted(members[number])),
            [max((v for v in c if v is not None), default=None) for c in columns],
        )


def _parallel_places(run: Run) -> dict[int, tuple[int, int, int]]:
    """rank → (dp, pp, tp) numbers, where the groups explain all ranks (dp · pp · tp = ranks); else nothing."""
    rows = run.connection.execute(
        """
        WITH sized AS (SELECT *, count(*) OVER (PARTITION BY "group") AS size FROM groups WHERE kind IN ('dp', 'pp', 'tp'))
        SELECT rank, kind, arg_min(index, size), min(size) FROM sized WHERE index IS NOT NULL GROUP BY rank, kind
        """
    ).fetchall()
    ranks = [row[0] for row in run.connection.execute("SELECT rank FROM ranks ORDER BY rank").fetchall()]
    sizes = {kind: max((size for _, of, _, size in rows if of == kind), default=1) for kind in ("dp", "pp", "tp")}
    if not rows or sizes["dp"] * sizes["pp"] * sizes["tp"] != len(ranks):
        return {}
    numbers = {(rank, kind): index for rank, kind, index, _ in rows}
    return {
        rank: (numbers.get((rank, "dp"), 0), numbers.get((rank, "pp"), 0), numbers.get((rank, "tp"), 0))
        for rank in ranks
    }


def _micros(values: list[int | None]) -> list[float | str]:
    return ["" if value is None else value / 1000 for value in values]


def _blank(step: int | None) -> int | str:
    return "" if step is None else step
