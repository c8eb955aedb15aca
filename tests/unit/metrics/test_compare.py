"""Two runs side by side: what is real and what is noise, against numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from paceline.core.errors import UsageError
from paceline.metrics.compare import Change, LinkKey, Measured, Sample, changes, compare, measure
from support.fake_run import FakeRun

MS = 1_000_000


def change(before: Sample, after: Sample, **more: Any) -> Change:
    [found] = changes({"x": before}, {"x": after}, "ms", **{"alike": False, **more})
    return found


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (Sample(100, 1.0, 9), Sample(103.01, 0.5, 9), "slower"),
        (Sample(100, 1.0, 9), Sample(103.0, 0.5, 9), "same"),  # three sigma
        (Sample(100, 0.5, 9), Sample(103.0, 1.0, 9), "same"),  # the later run is the noisy one
        (Sample(100, 1.0, 9), Sample(96.99, 0.5, 9), "faster"),
        (Sample(100, 0.1, 9), Sample(99.0, 0.1, 9), "same"),  # beyond noise, yet 1 %
        (Sample(100, 0.1, 9), Sample(98.99, 0.1, 9), "faster"),
        (Sample(-100, 0.1, 9), Sample(-101.01, 0.1, 9), "faster"),
        (Sample(100, 0.0, 2), Sample(103.08, 0.0, 2), "same"),  # noise unknown: 1 % of the larger, 3 σ = 3.09
        (Sample(100, 0.0, 2), Sample(103.1, 0.0, 2), "slower"),
        (Sample(100, 0.0, 2), Sample(101.1, 0.0, 3), "slower"),  # one run knows it
        (Sample(100, 0.0, 3), Sample(100.0, 0.0, 3), "same"),
        (Sample(0.5, 0.001, 9), Sample(0.4, 0.001, 9), "faster"),  # less than one unit, yet less
    ],
)
def test_a_change_is_real_beyond_three_sigma_and_one_per_cent(before: Sample, after: Sample, verdict: str) -> None:
    assert change(before, after).verdict == verdict


def test_a_change_tells_both_values_their_noise_and_its_size() -> None:
    found = change(Sample(100, 1.0, 9), Sample(125, 2.0, 9))
    assert (found.name, found.unit, found.before, found.after, found.noise) == ("x", "ms", 100, 125, 6)
    assert found.percent == pytest.approx(25) and found.noise_percent == pytest.approx(6)
    below = change(Sample(-50, 1.0, 9), Sample(-60, 1.0, 9))
    assert below.percent == pytest.approx(20) and below.noise_percent == pytest.approx(6)  # 3 of 50
    new = change(Sample(0, 0.0, 9), Sample(5, 0.0, 9))
    assert new.percent is None and new.noise_percent is None


@pytest.mark.parametrize(("least", "verdict"), [(1.9, "slower"), (2.0, "same")])
def test_a_change_that_is_little_of_the_step_is_not_reported(least: float, verdict: str) -> None:
    assert change(Sample(10, 0, 9), Sample(12, 0, 9), least=least).verdict == verdict


def test_more_bandwidth_is_faster() -> None:
    assert change(Sample(10, 0.1, 5), Sample(20, 0.1, 5), more_is_faster=True).verdict == "faster"
    assert change(Sample(20, 0.1, 5), Sample(10, 0.1, 5), more_is_faster=True).verdict == "slower"


def test_the_noise_of_alike_rows_is_at_least_their_usual_one() -> None:
    before = {name: Sample(100, sigma, 4) for name, sigma in {"a": 1.0, "b": 1.0, "c": 0.0}.items()}
    after = {**before, "c": Sample(102, 0.0, 4)}
    found = {one.name: one for one in changes(before, after, "ms")}
    assert {one.verdict for one in found.values()} == {"same"}
    assert found["c"].noise == pytest.approx(3 * 0.01 * 102)
    assert changes(before, after, "ms", alike=False)[0].verdict == "slower"


def test_rows_with_few_steps_or_without_a_value_do_not_tell_the_noise_of_others() -> None:
    known = {"a": Sample(100, 1.0, 3), "b": Sample(-100, 3.0, 3), "few": Sample(100, 50, 2), "zero": Sample(0, 9, 3)}
    [found] = changes(known, {"b": Sample(-100, 0, 3)}, "ms")
    assert found.noise == pytest.approx(3 * 3.0)  # its own; the median relative sigma is 2 %
    [other] = changes({**known, "b": Sample(-200, 0, 3)}, {"b": Sample(-100, 0, 3)}, "ms")
    assert other.noise == pytest.approx(3 * 0.005 * 200)  # of 1 % and 0


def test_real_changes_come_first_then_the_largest_then_by_number() -> None:
    after = {10: 101.0, 9: 101.0, 1: 102.5, 2: 90.0, 3: 120.0}
    before = dict.fromkeys((*after, 77), Sample(100, 1, 9))
    found = changes(before, {rank: Sample(time, 1, 9) for rank, time in {**after, 78: 1.0}.items()}, "ms", alike=False)
    assert [one.name for one in found] == ["3", "2", "1", "9", "10"]


STEP = {"step": Sample(1000, 1, 9)}
LINK = LinkKey(0, 1, "RDMA")


def measured(ranks: Sequence[int] = (0,), **tables: dict[str, Sample]) -> Measured:
    return Measured(frozenset(ranks), STEP, **{"phases": {}, **tables})


def test_a_part_of_a_step_must_change_by_a_thousandth_of_the_step() -> None:
    def verdict(after: float) -> str:
        both = (measured(phases={"free": Sample(value, 0, 9)}) for value in (10.0, after))
        [part] = compare(*both).phases
        return part.verdict

    assert [verdict(11.0), verdict(11.01)] == ["same", "slower"]
    ranks = [measured(by_rank={0: Sample(value, 0, 9)}) for value in (10.0, 11.0)]
    assert compare(*ranks).ranks[0].verdict == "same"
    operators = [measured(operators={"x": Sample(value, 0, 9)}) for value in (10.0, 11.0)]
    assert compare(*operators).operators[0].verdict == "same"


def test_parts_are_in_the_order_of_a_step_and_overlap_is_neither_good_nor_bad() -> None:
    before = {
        "free": Sample(100, 0, 9),
        "overlapped": Sample(50, 0, 9),
        "compute": Sample(9, 0, 9),
        "tail": Sample(0, 0, 9),
    }
    more = {**before, "overlapped": Sample(80, 0, 9), "free": Sample(50, 0, 9)}
    found = compare(measured(phases=before), measured(phases=more)).phases
    assert [(one.name, one.verdict) for one in found] == [
        ("compute", "same"),
        ("overlapped", "more"),
        ("free", "faster"),
    ]
    assert compare(measured(phases=more), measured(phases=before)).phases[1].verdict == "less"
    assert compare(measured(phases=more), measured(phases=more)).phases[1].verdict == "same"
    begun = compare(measured(phases=before), measured(phases={"tail": Sample(40, 0, 9)})).phases
    assert [(one.name, one.after) for one in begun] == [("tail", 40)]


def test_only_runs_of_the_same_ranks_are_compared_rank_by_rank() -> None:
    tables = {"by_rank": {0: Sample(9, 0, 9)}, "links": {LINK: Sample(9, 0, 9)}, "transports": {"t": Sample(9, 0, 9)}}
    same = compare(measured(**tables), measured(**tables))
    assert same.same_ranks and [one.unit for one in (*same.ranks, *same.links, *same.transports)] == [
        "ms",
        "GB/s",
        "GB/s",
    ]
    other = compare(measured(**tables), measured((0, 1), **tables))
    assert not other.same_ranks and (other.ranks, other.links, other.transports, other.operators) == ((), (), (), ())
    slower = {**tables, "links": {LINK: Sample(5, 0, 9)}, "transports": {"t": Sample(5, 0, 9)}}
    found = compare(measured(**tables), measured(**slower))
    assert (found.links[0].verdict, found.transports[0].verdict) == ("slower", "slower")
    assert found.links[0].key == LINK and found.links[0].name == "0 → 1 RDMA"


def test_operators_of_one_run_only_take_no_time_in_the_other_if_half_are_common() -> None:
    def names(before: str, after: str) -> dict[str, tuple[float, float]]:
        both = (measured(operators={name: Sample(50, 0, 9) for name in text}) for text in (before, after))
        return {one.name: (one.before, one.after) for one in compare(*both).operators}

    assert names("ab", "a") == {"a": (50, 50), "b": (50, 0)}
    assert names("a", "ab") == {"a": (50, 50), "b": (0, 50)}
    assert names("abc", "ad") == {"a": (50, 50)}  # one of four is common


@pytest.mark.parametrize(("which", "said"), [(0, "the run before"), (1, "the run after")])
def test_a_run_without_steps_is_refused(which: int, said: str) -> None:
    both = [measured(), measured()]
    both[which] = Measured(frozenset({0}), {}, {})
    with pytest.raises(UsageError, match=f"{said} recorded no step times"):
        compare(*both)


# -- reading a run -----------------------------------------------------------------------------------------------------


def recording(**tables: list[dict[str, Any]]) -> FakeRun:
    run = FakeRun(**{"ranks": [{"rank": 0, "format": "x"}, {"rank": 1, "format": "x"}, {"rank": 2}], **tables})
    run.connection.execute("CREATE VIEW links AS FROM transfers")
    return run


def test_steps_and_parts_are_medians_of_means_over_ranks() -> None:
    durations = {0: (100, 110, 140, None), 1: (120, 130, 140, 500)}
    steps = [
        {"rank": rank, "step": n, "duration": time * MS, "computing": 60 * MS, "exposed": (time - 60 - 10 * rank) * MS}
        for rank, times in durations.items()
        for n, time in enumerate(times)
        if time
    ]
    found = measure(recording(steps=steps))  # type: ignore[arg-type]
    # Means 110, 120 and 140; the fourth step was recorded by one rank only. MAD 10, b(3) = 1.495.
    step = found.step["step"]
    assert (step.median, step.sigma, step.count) == (120, pytest.approx(1.4826 * 10 * 1.495), 3)
    assert found.ranks == {0, 1} and found.phases["compute"] == Sample(60, 0, 3)
    assert found.phases["free"].median == 5 and found.phases["exposed"].median == 55
    assert found.by_rank == {0: Sample(60, 0, 3), 1: Sample(70, 0, 3)}


FEW = {2: 1.196, 3: 1.495, 4: 1.363, 5: 1.206, 6: 1.2, 7: 1.14, 8: 1.129, 9: 1.107, 10: 10 / 9.2, 20: 20 / 19.2}
"""b(n) of Croux and Rousseeuw; n / (n - 0.8) from ten on."""


def test_the_spread_of_few_steps_is_corrected() -> None:
    """Half of the steps are 10 GB/s above the median, half below (an odd one on it): the MAD is 10."""
    transfers = [
        {"step": n, "src": 0, "dst": count, "scope": "global", "transport": "x", "bytes": speed, "duration": 1}
        for count in FEW
        for n, speed in enumerate([90, 110] * (count // 2) + [100] * (count % 2))
    ]
    found = measure(recording(transfers=transfers))  # type: ignore[arg-type]
    assert {name: (sample.median, sample.sigma, sample.count) for name, sample in found.links.items()} == {
        LinkKey(0, count, "x"): (100, pytest.approx(1.4826 * 10 * factor), count) for count, factor in FEW.items()
    }


def test_operators_are_means_over_ranks_and_count_as_nothing_where_they_did_not_run() -> None:
    def kernel(rank: int, step: int | None, kind: str | None, time: int, **more: str) -> dict[str, Any]:
        return {"rank": rank, "step": step, "type": kind, "duration": time * MS, "core": "AI_CORE", **more}

    kernels = [
        *(kernel(rank, step, "MatMul", 10 * step) for rank in (0, 1) for step in (1, 2, 3) for _ in range(2)),
        kernel(0, 1, "Add", 8),
        kernel(1, 3, None, 6, name="nameless"),
        kernel(0, 1, "hcom", 900, core="COMMUNICATION"),
        kernel(0, None, "MatMul", 900),
    ]
    found = measure(recording(kernels=kernels))  # type: ignore[arg-type]
    assert found.operators == {
        "MatMul": Sample(40, pytest.approx(1.4826 * 20 * 1.495), 3),
        "Add": Sample(0, 0, 3),  # 4, 0 and 0 ms
        "nameless": Sample(0, 0, 3),
    }
    assert found.step == found.phases == found.by_rank == {}


def test_sums_over_a_whole_recording_are_a_series_over_ranks() -> None:
    def total(rank: int, time: int, **more: str) -> dict[str, Any]:
        return {"rank": rank, "level": "type", "name": "Conv", "core": "AI_CORE", "time": time * MS, **more}

    operators = [total(0, 30), total(1, 50), total(0, 10), total(0, 9, level="name"), total(0, 9, core="COMMUNICATION")]
    steps = [{"rank": rank, "step": n, "duration": MS} for rank in (0, 1) for n in (1, 2)]
    found = measure(recording(operators=operators, steps=steps))  # type: ignore[arg-type]
    # Rank 0 needs 40 ms in two steps, rank 1 50.
    assert found.operators == {"Conv": Sample(22.5, pytest.approx(1.4826 * 2.5 * 1.196), 2)}


def test_links_and_transports_carry_bytes_over_time() -> None:
    def moved(step: int, time: int, **more: Any) -> dict[str, Any]:
        row = {"step": step, "src": 0, "dst": 1, "scope": "global", "transport": "RDMA", "bytes": 40 * MS}
        return {**row, "duration": time * MS, **more}

    transfers = [
        *(moved(step, time) for step, time in ((1, 4), (2, 5), (3, 8))),
        moved(1, 16, src=1, dst=0),
        moved(1, 1, scope="group"),
        moved(1, 1, transport="LOCAL"),
        moved(1, 1, dst=0),
        moved(9, 0, src=1, dst=0),
    ]
    found = measure(recording(transfers=transfers))  # type: ignore[arg-type]
    assert found.links == {
        LinkKey(0, 1, "RDMA"): Sample(8, pytest.approx(1.4826 * 2 * 1.495), 3),  # 10, 8 and 5 GB/s
        LinkKey(1, 0, "RDMA"): Sample(2.5, 0, 1),
    }
    assert found.transports == {"RDMA": Sample(5, pytest.approx(1.4826 * 1 * 1.495), 3)}  # 80 / 20, 8 and 5
