"""The step with faults fixed that are given by name."""

from __future__ import annotations

import msgspec
import pytest

from paceline.core.errors import UsageError
from paceline.diagnosis.what_if import FixedStep, WhatIf, what_if
from support.fake_run import FakeRun
from support.small_cluster import SmallCluster, steady_cluster


def fixed(run: FakeRun, *fixes: str) -> list[float]:
    return [each.step_ms for each in what_if(run, fixes).fixes]


def test_fixes_are_applied_one_after_the_other() -> None:
    run = steady_cluster([[100] * 3, [140] * 3, [120] * 3, [100] * 3, [100] * 3], host=["a", "b", "c", "a", "a"]).run()
    assert what_if(run, ["rank:1", "host:c"]) == WhatIf(
        150.0,
        150.0,
        0.0,
        (
            FixedStep("rank:1", pytest.approx(130), pytest.approx(100 * 20 / 150)),
            FixedStep("host:c", pytest.approx(110), pytest.approx(100 * 40 / 150)),
        ),
    )
    assert fixed(run, "host:b") == [pytest.approx(130)] and fixed(run, "rank:2", "rank:3") == [150, 150]
    assert fixed(run, "overlap") == [140] and fixed(run, "stages", "link:0-1") == [150, 150]
    assert fixed(run) == []


def test_a_replay_that_differs_from_the_run_is_scaled_to_it() -> None:
    run = steady_cluster([[100, 100], [120, 120]], transfer=10).run()
    result = what_if(run, [])
    assert (result.step_ms, result.replayed_ms, str(result.residual_percent)) == (130, 130, "0.0")


def test_equal_stages_and_input() -> None:
    run = steady_cluster(
        [[90] * 2, [110] * 2], columns={"data_wait": [30, 10]}, transfer=0, stage=[0, 1]
    ).run()  # the step: 110 ms
    assert fixed(run, "stages") == [pytest.approx(100)]
    assert fixed(run, "input") == [pytest.approx(100)]  # 60 and 100 ms of work are left
    unknown = steady_cluster([[90] * 2, [110] * 2], transfer=0, stage=[None, 0]).run()
    assert fixed(unknown, "stages", "input") == [110, 110]


def messages(*, slow: float, sizes: tuple[int, ...] = (1 << 20,) * 4, between: tuple[int, int] = (0, 1)) -> FakeRun:
    """Pairs of ranks exchange one message per step, pair after pair; that of `between` takes `slow` ms, others 10."""
    cluster = SmallCluster(8)
    for _ in range(2):
        cluster.work([50] * 8)
        for number, pair in enumerate(((0, 1), (2, 3), (4, 5), (6, 7))):
            cluster.send(*pair, transfer=slow if pair == between else 10, bytes=sizes[number])
        cluster.meet(range(8), 10)
        cluster.end_step()
    return cluster.run()


@pytest.mark.parametrize("named", ["link:0-1", "link:1-0"])
def test_a_link_as_fast_as_the_others(named: str) -> None:
    assert fixed(messages(slow=40), named) == [pytest.approx(70)]  # 50 + 10 + 10 instead of 100 ms
    assert fixed(messages(slow=5), named) == [70]  # a fast one stays fast
    assert fixed(messages(slow=0), named) == [70]


def test_messages_of_other_sizes_are_no_measure() -> None:
    other = (1 << 20, 1 << 21, 1 << 21, 1 << 21)
    assert fixed(messages(slow=40, sizes=other), "link:0-1") == [100]
    # Sizes within 4 KiB are equal.
    alike = ((1 << 20) + 4095, 1 << 20, 1 << 20, 1 << 20)
    assert fixed(messages(slow=40, sizes=alike), "link:0-1") == [pytest.approx(70)]
    nearly = ((1 << 20) + 4096, 1 << 20, 1 << 20, 1 << 20)
    assert fixed(messages(slow=40, sizes=nearly), "link:0-1") == [100]


def test_collectives_of_other_kinds_and_sizes_are_no_measure() -> None:
    def run(op: str, members: tuple[int, ...] = (2, 3)) -> FakeRun:
        cluster = SmallCluster(6)
        for _ in range(2):
            cluster.work([50, 50, 50, 50, 20, 20])
            cluster.meet([0, 1], 40, group="a", op="all_gather")
            cluster.meet(members, 10, group="b", op=op)
            cluster.meet([4, 5], 20, group="c", op=op)
            cluster.meet(range(6), 10)
            cluster.end_step()
        return cluster.run()

    assert fixed(run("all_gather"), "link:0-1") == [pytest.approx(75)]  # the median of 10 and 20 ms instead of 40
    assert fixed(run("all_gather", (2, 3, 4)), "link:0-1") == [pytest.approx(90)]  # 10 + 20 ms of ranks 4 and 5
    assert fixed(run("broadcast"), "link:0-1") == [100]


@pytest.mark.parametrize(
    ("fix", "message"),
    [
        ("rank:9", "--fix rank:9: this run has no such rank or host"),
        ("host:x", "--fix host:x: this run has no such rank or host"),
        ("link:0-9", "--fix link:0-9: no collective was recorded between these ranks"),
        ("rank:-1", "--fix rank:-1: unknown fix"),
        ("rank:", "--fix rank:: unknown fix"),
        ("host:", "--fix host:: unknown fix"),
        ("link:1", "--fix link:1: unknown fix"),
        ("link:1-2-3", "--fix link:1-2-3: unknown fix"),
        ("link:a-b", "--fix link:a-b: unknown fix"),
        ("overlap:1", "--fix overlap:1: unknown fix"),
        ("5", "--fix 5: unknown fix"),
        ("a", "--fix a: unknown fix"),
        ("zoo:3", "--fix zoo:3: unknown fix"),
        ("zoo:1-2", "--fix zoo:1-2: unknown fix"),
        ("node:a", "--fix node:a: unknown fix"),
    ],
)
def test_names_that_mean_nothing(fix: str, message: str) -> None:
    run = steady_cluster([[100], [100]], host=["a", "b"]).run()
    with pytest.raises(UsageError, match=message):
        what_if(run, [fix])


def test_ranks_that_never_meet_have_no_link() -> None:
    cluster = SmallCluster(4)
    cluster.work([50] * 4)
    cluster.meet([0, 1], 10, group="a")
    cluster.meet([2, 3], 10, group="b")
    cluster.end_step()
    with pytest.raises(UsageError, match="no collective was recorded between these ranks"):
        what_if(cluster.run(), ["link:1-2"])


def test_results_cannot_be_changed() -> None:
    result = what_if(steady_cluster([[100], [100]]).run(), ["overlap"])
    assert msgspec.json.encode(result).startswith(b'{"schema":"paceline.what-if/1"')
    for struct in (result, result.fixes[0]):
        name = struct.__struct_fields__[0]
        with pytest.raises(AttributeError, match="immutable"):
            setattr(struct, name, 0)
