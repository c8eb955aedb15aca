"""Damaged recordings: the ablation (every layout × fault × file × kind) and random mutations, from fixed seeds.

    python -m robustness.profiles ablation [--share 1.0] [--jobs 2] [--write-docs]      (in benchmarks/; `make ablation`)
    python -m robustness.profiles mutations [--count 1000] [--seed 1] [--jobs 2]        (`make fuzz`)

Exits with 1 if a case ends in a traceback, a hang or a crash, or with a wrong culprit and no warning.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from paceline.simulate import ClusterSpec, simulate
from robustness.ablation_page import write_pages
from robustness.damage import ABLATIONS, MUTATIONS, class_of, link_tree, swapped
from robustness.verdicts import GOOD, Outcome, Said, counted, judge, run_all, said_of

LAYOUTS = (
    "ascend-text", "ascend-text-ms", "ascend-db", "mindinsight", "mindinsight-r13", "mindinsight-r21", "msadvisor",
    "msprof", "kineto",
)  # fmt: skip
FAULTS = (
    "slow-rank:2:1.6",
    "slow-link:0-2:6",
    "input-bound:2:6",
    "slow-operator:MatMulV2:2:3",
    "stage-imbalance:1:1.5",
)
CLUSTER = ClusterSpec(hosts=2, devices=2, dp=2, tp=2, pp=1, steps=4, layers=2, micro_batches=2, seed=3)
PIPELINE = ClusterSpec(hosts=2, devices=2, dp=2, tp=1, pp=2, steps=4, layers=8, micro_batches=4, seed=3)
KINDS = (*ABLATIONS, "swapped")
NOT_DAMAGE = frozenset({"duplicated", "byte order mark", "windows lines"})
"""Kinds after which all that was measured is still there."""
GOOD_OF_MUTATIONS: frozenset[Outcome] = GOOD | {"same, as sure"}
"""A changed digit or a lost line leaves the verdict right, and no trace to notice."""
_TRUTH = ".paceline-truth.json"


@dataclass(frozen=True)
class Case:
    """One recording with one file damaged."""

    seed: Path
    intact: Said
    file: str
    """Relative to the recording."""
    kind: str
    other: str = ""
    """With which file it is swapped."""
    chance: int = 0


def make_seeds(directory: Path, layouts: Sequence[str], faults: Sequence[str]) -> dict[Path, Said]:
    """Small clusters; a fault that a layout does not show when intact is left out."""
    found = {}
    for layout in layouts:
        for fault in faults:
            target = directory / layout / fault.partition(":")[0]
            simulate(target, PIPELINE if fault.startswith("stage") else CLUSTER, (fault,), layout)
            said = said_of(target)
            if said.id == fault.partition(":")[0]:
                found[target] = said
    return found


def ablation_cases(seeds: dict[Path, Said]) -> list[Case]:
    """Every class of file, of the culprit (rank 2) and of an innocent rank, in every kind."""
    cases = []
    for seed, said in seeds.items():
        for files in _by_class(seed).values():
            chosen = [files[2 * len(files) // 4], files[0]] if len(files) > 1 else files
            cases += [Case(seed, said, file, kind) for file in dict.fromkeys(chosen) for kind in ABLATIONS]
            if len(files) > 1:
                cases.append(Case(seed, said, chosen[0], "swapped", chosen[1]))
    return cases


def mutation_cases(seeds: dict[Path, Said], count: int, seed: int) -> list[Case]:
    chance = random.Random(seed)
    kinds, places = sorted(MUTATIONS), sorted(seeds)
    cases = []
    for number in range(count):
        place = places[number % len(places)]
        classes = _by_class(place)
        file = chance.choice(classes[chance.choice(sorted(classes))])
        cases.append(Case(place, seeds[place], file, chance.choice(kinds), chance=chance.randrange(1 << 30)))
    return cases


def run_case(case: Case) -> tuple[Outcome, str]:
    with tempfile.TemporaryDirectory(prefix="damaged-") as scratch:
        tree = Path(scratch) / case.seed.name
        link_tree(case.seed, tree)
        if case.kind == "swapped":
            if not swapped(tree / case.file, tree / case.other):
                return "same", "equal files"
        elif not MUTATIONS[case.kind](tree / case.file, random.Random(case.chance)):
            return "same", "does not apply"
        outcome, detail = judge(case.intact, partial(said_of, tree), harmless=_is_harmless(case))
        if outcome == "same, as sure" and not case.intact.read & {case.file, case.other}:
            return "same, not read", detail
        return outcome, detail


def _is_harmless(case: Case) -> bool:
    """A torch trace holds its rank: its name says nothing."""
    return case.kind in NOT_DAMAGE or (case.seed.parent.name == "kineto" and case.kind in ("renamed", "swapped"))


@cache
def _by_class(seed: Path) -> dict[str, list[str]]:
    found = defaultdict(list)
    for path in sorted(seed.rglob("*")):
        if path.is_file() and path.name != _TRUTH:
            found[class_of(path)].append(str(path.relative_to(seed)))
    return dict(found)


# -- results ----------------------------------------------------------------------------------------------------------


def report(results: Sequence[tuple[Case, Outcome, str]], *, accepted: frozenset[Outcome]) -> int:
    for case, outcome, detail in results:
        if outcome not in accepted:
            print(f"{outcome}: {case.seed.parent.name} {case.seed.name}: {case.file} {case.kind}: {detail}")
    print(counted([outcome for _, outcome, _ in results]))
    return int(any(outcome not in accepted for _, outcome, _ in results))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("ablation", "mutations"))
    parser.add_argument("--layout", action="append", choices=LAYOUTS)
    parser.add_argument("--fault", action="append")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--only", type=Path, help="lines that --verbose printed: run these cases again")
    parser.add_argument("--write-docs", action="store_true")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="paceline-seeds-"))
    try:
        faults = options.fault or (FAULTS if options.what == "ablation" else FAULTS[:1])
        seeds = make_seeds(directory, options.layout or LAYOUTS, faults)
        if options.what == "ablation":
            cases = ablation_cases(seeds)
            if options.only:
                again = {tuple(part.strip() for part in line.split("|")[:4]) for line in options.only.open()}
                cases = [c for c in cases if (c.seed.parent.name, c.seed.name, c.file, c.kind) in again]
            cases = random.Random(options.seed).sample(cases, round(options.share * len(cases)))
        else:
            cases = mutation_cases(seeds, options.count, options.seed)
        results = []
        for case, outcome, detail in run_all(run_case, cases, options.jobs):
            results.append((case, outcome, detail))
            if options.verbose:
                print(
                    case.seed.parent.name, case.seed.name, case.file, case.kind, outcome, detail, sep=" | ", flush=True
                )
        if options.write_docs:
            write_pages([(case.seed.parent.name, case.kind, outcome) for case, outcome, _ in results])
        return report(results, accepted=GOOD if options.what == "ablation" else GOOD_OF_MUTATIONS)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    sys.exit(main())
