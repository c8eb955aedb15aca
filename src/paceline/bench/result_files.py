"""Read the result files of a benchmarked training: throughput of every card, accuracy, number of ranks.

    cluster         throughput_{rank}.json  accuracy.json            ranksize.json   one number each
    single server   {node}/throughput_{card}.json  accuracy_{node}.json  ranksize.json   every node trained alone
    offline         throughput_rank_{rank}  eval_acc.log             (the number of ranks is given)

All missing and broken files are reported at once: a sum over the files that exist would be a wrong score.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from paceline.bench.number_file import ACCURACY_KEYS, THROUGHPUT_KEYS, read_count, read_number
from paceline.core.errors import FormatError, PacelineError, UsageError
from paceline.core.message import Sentence, in_lines, message, said_at
from paceline.core.scratch_directory import scratch_directory
from paceline.core.waiting import waiting_for
from paceline.storage.url import is_remote, parse_url

_THROUGHPUT = re.compile(r"throughput_(?:rank_)?(\d{1,5})(?:\.json)?")
_WANTED = re.compile(
    r"(?:\d{1,5}/)?(?:throughput_(?:rank_)?\d+(?:\.json)?|accuracy(?:_\d+)?\.json|ranksize\.json|"
    r"eval_acc\.log|phases\.json|evaluations\.json|workload\.json)"
)
_MOST_NAMED = 8
_Value = TypeVar("_Value")


class ResultError(PacelineError):
    """Result files that are missing or broken: exit code 4, or 3 when only the accuracy is."""

    def __init__(self, message: Sentence, *, hint: str | None = None, only_accuracy: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = 3 if only_accuracy else 4


@dataclass(frozen=True)
class NodeResult:
    """Throughput and accuracy of one node, or of the whole cluster."""

    name: str
    throughputs: tuple[float, ...]
    """Samples per second, by card or rank."""
    accuracy: float | None


@dataclass(frozen=True)
class ResultSet:
    nodes: tuple[NodeResult, ...]
    single_server: bool
    warnings: tuple[Sentence, ...] = ()


@contextmanager
def local_results(where: str | Path) -> Iterator[Path]:
    """A local result directory; of a remote one, the result files in a temporary directory."""
    if not is_remote(where):
        path = Path(parse_url(where).path)
        if not path.is_dir():
            raise UsageError(
                f"{path}: directory not found", hint="give the directory the training wrote its results to"
            )
        yield path
        return
    from paceline.storage.reachability import require_reachable
    from paceline.storage.transfer.transfer import TransferOptions, transfer

    require_reachable(where)
    with scratch_directory() as temporary, waiting_for(f"the result files in {where}"):
        report = transfer(str(where), str(temporary), TransferOptions(file_filter=is_result_file))
        report.raise_failures()
        yield temporary


def is_result_file(key: str) -> bool:
    return bool(_WANTED.fullmatch(key))


def read_cluster(where: Path, *, ranks: int | None = None, accuracy: bool = True, source: str = "") -> ResultSet:
    """One training over all ranks; `ranks` is the number expected in ranksize.json. `source`: as the user named it."""
    alone = not _cards(where) and any(_cards(where / name) for name in _node_names(where))
    problems = _Problems(
        where, source, "every node has results of its own: did you mean --single-server?" if alone else ""
    )
    if any(where.glob("throughput_rank_*")):
        return _read_offline(where, problems, ranks, accuracy)
    declared = (
        problems.value(read_count, where / "ranksize.json") if not ranks or _has(where, "ranksize.json") else None
    )
    if ranks and declared and declared != ranks:
        problems.add(f"ranksize.json: {declared}, but the job had {ranks} ranks")
    count = ranks or declared
    found = _cards(where) if count is None else range(count)
    values = [problems.value(_throughput, where / f"throughput_{rank}.json") for rank in found]
    if not values:
        problems.add("throughput_0.json: not found")
    precision = problems.value(_accuracy, where / "accuracy.json") if accuracy else None
    problems.raise_any()
    node = NodeResult("cluster", tuple(value for value in values if value is not None), precision)
    return ResultSet((node,), False, _left_over(where, len(values)))


def read_single_servers(where: Path, *, nodes: int | None = None, accuracy: bool = True, source: str = "") -> ResultSet:
    """Every node trained alone; its cards are counted and checked against ranksize.json."""
    together = bool(_cards(where)) and not _node_names(where)
    problems = _Problems(where, source, "all ranks trained together: score without --single-server" if together else "")
    names = [str(node) for node in range(nodes)] if nodes else _node_names(where)
    if not names:
        problems.add("0/throughput_0.json: not found; no node has its own directory")
    cards_of_all = problems.value(read_count, where / "ranksize.json") if _has(where, "ranksize.json") else None
    # A node that lost a card looks like a smaller node; nodes of different size need a ranksize.json each.
    expected = cards_of_all or max((len(_cards(where / name)) for name in names), default=0) or 1
    read: list[NodeResult] = []
    warnings: list[Sentence] = []
    for name in names:
        place = where / name
        declared = problems.value(read_count, place / "ranksize.json") if _has(place, "ranksize.json") else None
        cards = declared or expected
        values = [problems.value(_throughput, place / f"throughput_{card}.json") for card in range(cards)]
        precision = problems.value(_accuracy, _accuracy_place(where, name)) if accuracy else None
        read.append(NodeResult(name, tuple(value for value in values if value is not None), precision))
        warnings += _left_over(place, cards)
    problems.raise_any()
    return ResultSet(tuple(read), True, tuple(warnings))


def _read_offline(where: Path, problems: _Problems, ranks: int | None, accuracy: bool) -> ResultSet:
    found = _cards(where)
    count = ranks or max(found, default=0) + 1
    values = [problems.value(_throughput, where / f"throughput_rank_{rank}") for rank in range(count)]
    precision = problems.value(_accuracy, where / "eval_acc.log") if accuracy else None
    problems.raise_any()
    untold = () if ranks else (said_at(str(where), message("ranks_unknown", n=count)),)
    node = NodeResult("cluster", tuple(value for value in values if value is not None), precision)
    return ResultSet((node,), False, (*untold, *_left_over(where, count)))


class _Problems:
    """Collects the problems of a directory's files."""

    def __init__(self, where: Path, source: str = "", hint: str = "") -> None:
        self._where, self._found, self._others = where, list[str](), 0
        self._source = source or str(where)
        self._hint = hint or "nothing was scored; the training writes these files at its end: see its log"

    def value(self, read: Callable[[Path], _Value], path: Path) -> _Value | None:
        try:
            return read(path)
        except FormatError as error:
            self.add(str(error).removeprefix(f"{self._where}/"))
            return None

    def add(self, problem: str) -> None:
        self._found.append(problem)
        self._others += not re.search(r"accuracy|eval_acc", problem.partition(":")[0])

    def raise_any(self) -> None:
        if not self._found:
            return
        more = len(self._found) - _MOST_NAMED
        told = said_at(self._source, message("broken_results", n=len(self._found)))
        left = [message("and_more", n=more)] if more > 0 else []
        raise ResultError(
            in_lines([told, *self._found[:_MOST_NAMED], *left]),
            hint=self._hint,
            only_accuracy=not self._others,
        )


def _throughput(path: Path) -> float:
    return read_number(path, THROUGHPUT_KEYS)


def _accuracy(path: Path) -> float:
    return read_number(path, ACCURACY_KEYS)


def _accuracy_place(where: Path, node: str) -> Path:
    """Next to the nodes' directories as documented, or inside them."""
    inside = where / node / "accuracy.json"
    named = where / f"accuracy_{node}.json"
    return inside if inside.is_file() and not named.is_file() else named


def _has(where: Path, name: str) -> bool:
    return (where / name).exists()


def _cards(where: Path) -> list[int]:
    """Numbers of the ranks or cards that have a file."""
    if not where.is_dir():
        return []
    return sorted(int(found[1]) for entry in where.iterdir() if (found := _THROUGHPUT.fullmatch(entry.name)))


def _node_names(where: Path) -> list[str]:
    """0 … the highest: a node in between without files is reported as missing."""
    numbers = [int(entry.name) for entry in where.iterdir() if entry.is_dir() and re.fullmatch(r"\d{1,5}", entry.name)]
    return [str(node) for node in range(max(numbers, default=-1) + 1)]


def _left_over(where: Path, count: int) -> tuple[Sentence, ...]:
    extra = [rank for rank in _cards(where) if rank >= count]
    if not extra:
        return ()
    return (said_at(str(where), message("left_over", n=len(extra), all=count)),)
