"""Do the unit tests notice when a formula changes? Mutants of metrics, replay and diagnosis, by cosmic-ray and for SQL.

    make mutation                                             # a sample of all three packages, about 20 minutes
    .venv/bin/python scripts/mutation.py --all                # every position, hours
    .venv/bin/python scripts/mutation.py metrics/peers.py --all --show

At every position that an operator of cosmic-ray can change (numbers, arithmetic, comparisons, conditions, loops; module
constants too) one of its changes is drawn with a fixed seed; annotations are left out, because nothing evaluates them. Python
sees SQL as text, so texts that hold SQL are changed by `_sql_mutants`. Each mutant runs the unit tests of its package in a
process forked after the libraries were imported, the tests named like its module first, until the first failure.

Mutants that change nothing anybody can observe count as survivors.
"""

from __future__ import annotations

import argparse
import ast
import importlib.abc
import importlib.machinery
import os
import random
import re
import resource
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from pathlib import Path
from types import CodeType, ModuleType

import cosmic_ray.plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src/paceline"
PACKAGES = ("metrics", "replay", "diagnosis")
REQUIRED = 0.85
SAMPLE = 600
SEED = 1
SLOWEST_CPU_S = 60
"""Longer than all unit tests of a package take; a mutant that needs more hangs, and counts as noticed."""
# Removing a decorator, or catching another exception, mostly breaks the import: it says nothing about a formula.
LEFT_OUT = ("RemoveDecorator", "ExceptionReplacer", "VariableReplacer", "VariableInserter")

SQL = re.compile(r"\b(SELECT|WHERE|CASE WHEN|PARTITION BY)\b")
SQL_SWAPS = {
    "<": ">=", ">": "<=", "<=": ">", ">=": "<", "+": "-", "-": "+", "*": "/", "/": "*", "=": "!=", "!=": "=",
    "min": "max", "max": "min", "sum": "max", "median": "max", "avg": "max", "AND": "OR", "OR": "AND",
    "least": "greatest", "greatest": "least", "ASC": "DESC", "DESC": "ASC",
}  # fmt: skip
SQL_TOKEN = re.compile(
    r"(?<=\s)(<=|>=|!=|<|>|\+|-|\*|/|=)(?=\s)|\b(min|max|sum|median|avg|least|greatest)(?=\()|\b(AND|OR|ASC|DESC)\b"
    r"|(?<![\w.'])(\d+(?:\.\d+)?(?:e\d+)?)(?![\w.'])"
)

Position = tuple[int, int]


@dataclass(frozen=True)
class Mutant:
    module: Path
    position: Position
    change: str
    occurrence: int = 0
    """Of what the operator of cosmic-ray can change."""
    code_of_sql: str = ""

    @cached_property
    def code(self) -> str:
        """The changed source; empty if it does not compile."""
        changed = self.code_of_sql
        if not changed:
            operator = cosmic_ray.plugins.get_operator(f"core/{self.change}")()
            changed = mutate_code(self.module.read_text(encoding="utf-8"), operator, self.occurrence) or ""
        try:
            compile(changed, "mutant", "exec")
        except SyntaxError:
            return ""
        return changed

    def __str__(self) -> str:
        line = self.code.splitlines()[self.position[0] - 1].strip()
        return f"{self.module.relative_to(SOURCE)}:{self.position[0]}  {self.change}\n    {line}"


def mutants(module: Path, draw: random.Random) -> list[Mutant]:
    """One mutant for each position."""
    code = module.read_text(encoding="utf-8")
    return [*_python_mutants(module, code, draw), *_sql_mutants(module, code)]


def _python_mutants(module: Path, code: str, draw: random.Random) -> Iterator[Mutant]:
    tree, ignored = get_ast(code), _unevaluated(code)
    choices: dict[tuple[Position, str], list[tuple[str, int]]] = {}
    for name in cosmic_ray.plugins.operator_names():
        if name.endswith(LEFT_OUT):
            continue
        operator = cosmic_ray.plugins.get_operator(name)()
        positions = (start for node in ast_nodes(tree) for start, _ in operator.mutation_positions(node))
        for occurrence, start in enumerate(positions):
            if not any(first <= start < last for first, last in ignored):
                kind = name.partition("/")[2].split("_")[0]
                choices.setdefault((start, kind), []).append((name, occurrence))
    for (start, _), options in sorted(choices.items()):
        name, occurrence = draw.choice(options)
        yield Mutant(module, start, name.partition("/")[2], occurrence)


def _unevaluated(code: str) -> list[tuple[Position, Position]]:
    """Annotations, imports for type checkers only, and zip's strict, which is an assertion."""
    spans = []
    for node in ast.walk(ast.parse(code)):
        nodes: list[ast.AST | None] = []
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            arguments = [
                *node.args.posonlyargs,
                *node.args.args,
                *node.args.kwonlyargs,
                node.args.vararg,
                node.args.kwarg,
            ]
            nodes = [node.returns, *(each.annotation for each in arguments if each)]
        elif isinstance(node, ast.AnnAssign):
            nodes = [node.annotation]
        elif (isinstance(node, ast.keyword) and node.arg == "strict") or (
            isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        ):
            nodes = [node]
        for each in nodes:
            if each is not None:
                spans.append((_position(each), (each.end_lineno or 0, each.end_col_offset or 0)))  # type: ignore[attr-defined]
    return spans


def _position(node: ast.AST) -> Position:
    return node.lineno, node.col_offset  # type: ignore[attr-defined]


def _sql_mutants(module: Path, code: str) -> Iterator[Mutant]:
    lines = code.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    texts = (tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1))
    for token in tokenize.generate_tokens(StringIO(code).readline):
        if token.type not in texts or not SQL.search(token.string):
            continue
        begin = starts[token.start[0] - 1] + token.start[1]
        for match in SQL_TOKEN.finditer(token.string):
            old = match.group()
            new = SQL_SWAPS.get(old) or f"{2 * float(old) + 1:.10g}"
            at = begin + match.start()
            position = (code.count("\n", 0, at) + 1, at - (code.rfind("\n", 0, at) + 1))
            changed = code[:at] + new + code[at + len(old) :]
            yield Mutant(module, position, f"SQL {old} → {new}", code_of_sql=changed)


class _MutatedModule(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports one module from changed source."""

    def __init__(self, name: str, mutant: Mutant) -> None:
        self.name, self.mutant = name, mutant

    def find_spec(
        self, fullname: str, path: object, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, origin=str(self.mutant.module))

    def get_source(self, fullname: str) -> str:
        return self.mutant.code

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.mutant.code, str(self.mutant.module), "exec")


def is_noticed(mutant: Mutant | None, package: str) -> bool:
    """Whether a unit test fails; without a mutant: whether the tests fail as they are."""
    child = os.fork()
    if child == 0:
        result = 1
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (SLOWEST_CPU_S, SLOWEST_CPU_S))
            result = _run_tests(mutant, package)
        finally:  # whatever a mutant raises: a child that went on would fork children of its own
            os._exit(result)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) != 0


def _run_tests(mutant: Mutant | None, package: str) -> int:
    import pytest

    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    tests = ROOT / "tests/unit" / package
    first: list[Path] = []
    if mutant is not None:
        name = ".".join(["paceline", *mutant.module.relative_to(SOURCE).with_suffix("").parts])
        sys.meta_path.insert(0, _MutatedModule(name, mutant))
        first = sorted(tests.rglob(f"test_{mutant.module.stem}*.py"))
    rest = [path for path in sorted(tests.rglob("test_*.py")) if path not in first]
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "pytest_timeout", "--no-header"]
    for paths in (first, rest):
        if paths and int(pytest.main([*options, *map(str, paths)])):
            return 1
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Mutation score of metrics, replay and diagnosis.")
    parser.add_argument(
        "modules", nargs="*", help="below src/paceline, such as metrics/peers.py or replay; default all three"
    )
    parser.add_argument("--all", action="store_true", help=f"every position, not a sample of {SAMPLE}")
    parser.add_argument("--sample", type=int, default=SAMPLE)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--show", action="store_true", help="print each survivor")
    arguments = parser.parse_args()

    draw = random.Random(arguments.seed)
    found = [mutant for module in _modules(arguments.modules or PACKAGES) for mutant in mutants(module, draw)]
    if not arguments.all and len(found) > arguments.sample:
        found = draw.sample(found, arguments.sample)
    found = [mutant for mutant in found if mutant.code]
    _import_libraries()
    for package in sorted({_package(mutant) for mutant in found}):
        if is_noticed(None, package):
            print(f"tests/unit/{package} fails without any mutant: run it with pytest first")
            return 2
    with ThreadPoolExecutor(arguments.jobs) as workers:
        noticed = []
        for mutant, seen in zip(found, workers.map(lambda each: is_noticed(each, _package(each)), found), strict=True):
            noticed.append(seen)
            if arguments.show and not seen:
                print(mutant, flush=True)
            if len(noticed) % 20 == 0:
                print(f"{sum(noticed)} of {len(noticed)} noticed, {len(found)} in all", file=sys.stderr, flush=True)
    return _report(found, noticed)


def _modules(names: list[str] | tuple[str, ...]) -> Iterator[Path]:
    for name in names:
        path = SOURCE / name
        if not path.exists():
            raise SystemExit(f"{path} does not exist")
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def _package(mutant: Mutant) -> str:
    return mutant.module.relative_to(SOURCE).parts[0]


def _import_libraries() -> None:
    """What every mutant's process needs and no mutant changes."""
    import duckdb  # noqa: F401
    import hypothesis  # noqa: F401
    import msgspec  # noqa: F401
    import numpy  # noqa: F401
    import pytest  # noqa: F401
    import yaml  # noqa: F401


def _report(found: list[Mutant], noticed: list[bool]) -> int:
    counts, killed = (
        Counter(map(_package, found)),
        Counter(_package(m) for m, seen in zip(found, noticed, strict=True) if seen),
    )
    by_module, killed_in = (
        Counter(str(m.module.relative_to(SOURCE)) for m in found),
        Counter(str(m.module.relative_to(SOURCE)) for m, seen in zip(found, noticed, strict=True) if seen),
    )
    for name, count in sorted(by_module.items()):
        print(f"{name:45} {killed_in[name]:5} of {count:5}  {killed_in[name] / count:4.0%}")
    for name, count in counts.items():
        print(f"{name:45} {killed[name]:5} of {count:5}  {killed[name] / count:4.0%}")
    low = [name for name, count in counts.items() if killed[name] < REQUIRED * count]
    if low:
        print(f"Below {REQUIRED:.0%}: {', '.join(low)}")
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
