"""One number everywhere: title, evidence, terminal, breakdown, report, REST tables and charts agree, for every fault.

Each fault of the simulator is diagnosed once; then every place that shows a number of the finding is asked for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paceline
from paceline.diagnosis.diagnose import diagnose
from paceline.diagnosis.finding import Diagnosis, Evidence, Finding
from paceline.diagnosis.hardware import default_hardware
from paceline.diagnosis.knowledge import IDS
from paceline.metrics.breakdown import Breakdown
from paceline.metrics.steps import PARTS
from paceline.metrics.table import Table
from paceline.output.report_data import ReportData, report_data
from paceline.output.terminal import figure, print_diagnosis
from paceline.run.run import Run
from paceline.simulate import ClusterSpec, simulate
from paceline.simulate.faults import KINDS
from paceline.web.api.charts import breakdown_rows, communication_rows, host_link_rows, link_rows, self_time_rows
from paceline.web.paging import Filters, read_page
from paceline.web.snapshot import Snapshot, make_snapshot
from paceline.web.tables import TABLES

SMALL = ClusterSpec(hosts=2, devices=4, dp=4, tp=1, pp=2, steps=4, layers=4, micro_batches=4, seed=5)
FLAT = ClusterSpec(hosts=2, devices=4, dp=4, tp=2, pp=1, steps=4, layers=4, micro_batches=2, seed=5)
FOUR_HOSTS = replace(FLAT, hosts=4, devices=2)
SHAPES = {
    **dict.fromkeys(("slow-host", "comm-exposed", "bandwidth-contention"), FLAT),
    **dict.fromkeys(("slow-nic", "slow-network"), FOUR_HOSTS),  # of two hosts, a slow card of either looks the same
    "expert-imbalance": replace(FLAT, dp=8, tp=1, experts=4),
    "periodic-stall": replace(FLAT, steps=6),
}
LAYOUTS = {"expert-imbalance": "kineto"}
"""The only one that the simulator can write for experts."""
NO_NUMBER = {"clock-skew", "data-incomplete"}
ASKED = {
    "slow-rank": "slow-rank:5:1.3",
    "slow-host": "slow-host:node1:1.3",
    "slow-link": "slow-link::4",
    "slow-nic": "slow-nic:node2:4",
    "expert-imbalance": "expert-imbalance:1:1.6",
    "input-bound": "input-bound:3",
    "host-bound": "host-bound",
    "jitter": "jitter::0.15",
    "comm-exposed": "comm-exposed",
}
"""How a fault is asked for, where its name alone is not enough to be found in so small a cluster."""


@dataclass
class Shown:
    """One run, and every place that shows its numbers."""

    diagnosis: Diagnosis
    report: ReportData
    run: Run
    source: Path
    store: Path

    @property
    def snapshot(self) -> Snapshot:
        """With a cursor of its own, as each request has one."""
        return Snapshot(self.run.connection.cursor())

    @cached_property
    def terminal(self) -> str:
        out = StringIO()
        with redirect_stdout(out):
            print_diagnosis(self.diagnosis, "en", 0)
        return " ".join(out.getvalue().split())

    @cached_property
    def breakdown(self) -> Breakdown:
        return paceline.breakdown(self.source, store=self.store)

    def rows(self, table: str, **filters: Any) -> list[dict[str, Any]]:
        """Of the REST API."""
        ranks = ("rank", "src", "dst")  # lists of ranks in the API
        given: Filters = {name.rstrip("_"): [value] if name in ranks else value for name, value in filters.items()}
        declared = TABLES[table]
        page = read_page(self.snapshot.cursor, declared, given, sort=declared.sort, offset=0, limit=500)
        return [dict(zip(declared.names, row, strict=True)) for row in page.rows]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Shown]]:
    opened = []

    def show(fault: str, spec: ClusterSpec = SMALL, layout: str = "ascend-text") -> Shown:
        base = tmp_path_factory.mktemp("one-number")
        simulate(base / "run", spec, [fault], layout)
        run = paceline.open(base / "run", store=base / "store")
        opened.append(run)
        hardware = replace(
            default_hardware(), memory_gib=(64.0,), memory_is_given=True
        )  # as --hardware names the cards
        make_snapshot(run, base, hardware)
        diagnosis = diagnose(run, hardware=hardware)
        report = report_data(run, {"en": diagnosis}, nominal=hardware.nominal_speeds, capacity_for=hardware.memory_for)
        return Shown(diagnosis, report, run, base / "run", base / "store")

    yield show
    for run in opened:
        run.close()


@pytest.mark.parametrize("fault", [kind.id for kind in KINDS])
def test_every_place_shows_the_same_numbers(fault: str, shown: Callable[..., Shown]) -> None:
    run = shown(ASKED.get(fault, fault), SHAPES.get(fault, SMALL), LAYOUTS.get(fault, "ascend-text"))
    assert_rows_add_up(run)
    assert_charts_and_tables_agree(run)
    for finding in run.diagnosis.findings:
        assert_finding_agrees(run, finding)
    found = {finding.id for finding in run.diagnosis.findings}
    assert fault in NO_NUMBER or fault in found or fault not in IDS, "a fault that has an id of its own is found"


@pytest.mark.parametrize("layout", ["ascend-db", "kineto", "mindinsight"])
def test_every_layout_shows_the_same_numbers(layout: str, shown: Callable[..., Shown]) -> None:
    run = shown("slow-rank:5:1.3", FLAT, layout)
    assert_rows_add_up(run)
    assert_charts_and_tables_agree(run)
    [finding, *_] = run.diagnosis.findings
    assert finding.id == "slow-rank" and finding.subject.ranks == (5,)
    assert_finding_agrees(run, finding)


def test_the_slow_host_of_sixteen_cards_has_one_number(shown: Callable[..., Shown]) -> None:
    """`paceline simulate host --fault slow-host:node1:1.3 --hosts 2 --devices 8 --tp 2 --pp 1`."""
    run = shown("slow-host:node1:1.3", ClusterSpec(hosts=2, devices=8, dp=8, tp=2, pp=1))
    [finding] = run.diagnosis.findings
    assert finding.id == "slow-host" and percent_of(finding.title) == 29
    assert_finding_agrees(run, finding)
    excess = {row["rank"]: row["excess"] for row in run.rows("step-trace")}
    assert all(0.28 < excess[rank] < 0.30 for rank in range(8))  # the slow host, in every cell
    assert all(abs(excess[rank]) < 0.01 for rank in range(8, 16))  # the healthy one


# -- what must agree ----------------------------------------------------------------------------------------------------


def percent_of(title: str) -> int:
    [number] = re.findall(r"(\d+) %", title)
    return int(number)


def evidence_of(finding: Finding, key: str) -> Evidence:
    return next(evidence for evidence in finding.evidence if evidence.key == key)


def column(table: Table, name: str) -> dict[int, float]:
    return dict(zip(table.numbers["rank"].astype(int).tolist(), table.numbers[name].tolist(), strict=True))


def same(value: float) -> Any:
    """To all digits that single precision, which charts are sent in, and rounding for people leave."""
    return pytest.approx(value, rel=2e-5, abs=1e-6, nan_ok=True)


def assert_rows_add_up(run: Shown) -> None:
    steps = [row for rank in range(8) for row in run.rows("card-steps", rank=rank)]
    assert len(steps) >= 8 * 2
    for row in (*steps, *run.rows("step-trace"), *run.rows("step-trace", step=2)):
        assert sum(row[part] for part in PARTS) == pytest.approx(row["duration"])
        if row["reference"]:
            assert row["excess"] == pytest.approx(row["self_time"] / row["reference"] - 1)
    for name in ("breakdown", "host_breakdown", "cluster_breakdown"):
        table = run.report.tables[name].numbers
        assert sum(table[part] for part in PARTS) == pytest.approx(table["duration"])
    for step, *parts in zip(*run.breakdown.parts.values(), strict=True):
        assert sum(parts) == pytest.approx(step)
    facts = run.diagnosis.run
    assert facts.mean_step_ms and facts.best_step_ms
    assert facts.best_step_ms + sum(part.ms for part in facts.loss) == pytest.approx(facts.mean_step_ms, abs=1e-6)
    for part in facts.loss:
        assert part.ms == pytest.approx(np.mean(part.by_step), abs=0.01), part.cause


def assert_charts_and_tables_agree(run: Shown) -> None:
    """The same cell of the report, the REST tables, the bars, the heat map and `breakdown`."""
    chart, about = breakdown_rows(run.snapshot, None, {"host": None, "stage": None, "group": None})
    table = {row["rank"]: row for row in run.rows("step-trace")}
    report = run.report.tables["breakdown"]
    for name in ("duration", *PARTS, "self_time", "reference", "excess"):
        cells = {rank: same(np.nan if row[name] is None else row[name]) for rank, row in table.items()}
        assert column(chart, name) == cells and column(report, name) == cells, name
    mean = run.report.tables["cluster_breakdown"].numbers
    assert about["mean"] == {name: same(float(mean[name][0])) for name in ("duration", *PARTS)}
    look = run.breakdown
    assert dict(zip(look.ranks, look.excess, strict=True)) == {
        rank: same(cell) for rank, cell in column(chart, "excess").items()
    }
    assert dict(zip(look.ranks, look.self_time, strict=True)) == {
        rank: same(cell) for rank, cell in column(chart, "self_time").items()
    }
    heat = self_time_rows(run.snapshot).numbers
    cells = dict(zip(zip(heat["rank"], heat["step"], strict=True), heat["excess"], strict=True))
    for row in (row | {"step": 2} for row in run.rows("step-trace", step=2)):
        assert cells[row["rank"], row["step"]] == same(np.nan if row["excess"] is None else row["excess"])
    assert_communication_agrees(run)
    assert_links_agree(run)


def assert_communication_agrees(run: Shown) -> None:
    table = run.rows("communication")
    chart = communication_rows(run.snapshot, None)
    for name in ("time", "waiting", "transit", "waiting_share", "bytes"):
        assert column(chart, name) == {row["rank"]: same(np.nan if row[name] is None else row[name]) for row in table}
    pieces = run.report.tables["operator_times"].numbers
    known = ~np.isnan(pieces["idle"])
    parts = sum(np.nan_to_num(pieces[name][known]) for name in ("transit", "sync", "later_wait", "idle"))
    assert parts == pytest.approx(pieces["elapse"][known], abs=1e-6)
    collectives = run.report.tables["collectives"].numbers
    assert collectives["waiting_share"] == pytest.approx(collectives["wait"] / collectives["time"], nan_ok=True)


def assert_links_agree(run: Shown) -> None:
    table = {(row["src"], row["dst"], row["transport"]): row for row in run.rows("links", per="total")}
    for links in (run.report.tables["links"], link_rows(run.snapshot, None, "total")):
        numbers = links.numbers
        keys = zip(
            numbers["src"].astype(int), numbers["dst"].astype(int), links.texts.get("transport", ()), strict=True
        )
        for at, key in enumerate(keys):
            for name in ("bandwidth", "ratio", "time", "bytes"):
                cell = table[key][name]
                assert numbers[name][at] == same(np.nan if cell is None else cell)
    for row in table.values():
        assert row["bandwidth"] == pytest.approx(row["bytes"] / row["time"] / 1e6)
        if row["reference"]:
            assert row["ratio"] == pytest.approx(row["bandwidth"] / row["reference"])
    hosts, report = host_link_rows(run.snapshot, None, "total"), run.report.tables["host_links"]
    assert hosts.numbers["bandwidth"] == pytest.approx(report.numbers["bandwidth"])


def assert_finding_agrees(run: Shown, finding: Finding) -> None:
    assert finding.title in run.terminal
    for evidence in finding.evidence:
        assert figure(evidence.value) in run.terminal
        if evidence.change is not None:  # as the report shows it beside both values
            assert evidence.peers and evidence.change == pytest.approx(evidence.value / evidence.peers - 1, abs=1e-4)
    if finding.id not in NO_NUMBER:
        CHECKS[finding.id](run, finding)


def _self_time(run: Shown, finding: Finding) -> tuple[int, dict[str, Any]]:
    """The rank of the evidence, and its row of the step table."""
    evidence = evidence_of(finding, "self_time")
    rows = [row for row in run.rows("step-trace") if round(row["self_time"], 3) == evidence.value]
    [row] = [row for row in rows if row["rank"] in finding.subject.ranks]
    assert evidence.peers == round(row["reference"], 3)
    last = {one["rank"]: one["last"] for one in run.rows("communication")}
    assert evidence_of(finding, "last_to_arrive").value == round(100 * (last[row["rank"]] or 0), 1)
    arrivals = column(run.report.tables["arrivals"], "last_share") if run.report.tables["arrivals"].length else {}
    assert arrivals.get(row["rank"], 0) == same(last[row["rank"]] or 0)
    slow = {each.rank: each for each in run.breakdown.slow}
    assert slow[row["rank"]].excess == same(row["excess"])
    return row["rank"], row


def _slow_rank(run: Shown, finding: Finding) -> None:
    rank, row = _self_time(run, finding)
    evidence = evidence_of(finding, "self_time")
    assert evidence.peers
    assert percent_of(finding.title) == round(100 * (evidence.value / evidence.peers - 1)) == round(100 * row["excess"])
    worst = max(run.rows("step-trace"), key=lambda one: one["excess"] or 0)
    assert worst["rank"] == rank


def _frequency_drop(run: Shown, finding: Finding) -> None:
    _self_time(run, finding)  # the title shows frequencies


def _slow_host(run: Shown, finding: Finding) -> None:
    rank, row = _self_time(run, finding)
    hosts = run.report.tables["host_breakdown"]
    at = list(hosts.texts["host"]).index(finding.subject.hosts[0])
    assert hosts.numbers["median_rank"][at] == rank and hosts.numbers["excess"][at] == same(row["excess"])
    assert percent_of(finding.title) == round(100 * row["excess"])


def _slow_link(run: Shown, finding: Finding) -> None:
    link, evidence = finding.subject.links[0], evidence_of(finding, "bandwidth")
    [row] = [
        row for row in run.rows("links", src=link.src, dst=link.dst, per="total") if row["transport"] == link.transport
    ]
    assert (evidence.value, evidence.peers) == (round(row["bandwidth"], 2), round(row["reference"], 2))
    assert re.findall(r"([\d.]+) GB/s", finding.title) == [f"{row['bandwidth']:.1f}", f"{row['reference']:.1f}"]
    assert run.rows("links")[0]["ratio"] == row["ratio"], "the slowest of its class comes first"
    assert evidence_of(finding, "data_moved").value == round(row["bytes"] / 1e6, 1)


def _network(run: Shown, finding: Finding) -> None:
    """All links of the component together: bytes over time, as the rows of the table of links add up."""
    links = {(link.src, link.dst, link.transport) for link in finding.subject.links}
    [transport] = {link.transport for link in finding.subject.links} or set(finding.subject.operators)
    rows = [row for row in run.rows("links", transport=transport, per="total") if row["scope"] == "global"]
    rows = [row for row in rows if not links or (row["src"], row["dst"], row["transport"]) in links]
    moved, time = sum(row["bytes"] for row in rows), sum(row["time"] for row in rows)
    evidence = evidence_of(finding, "bandwidth")
    assert evidence.value == pytest.approx(moved / time / 1e6, abs=0.006)
    assert evidence_of(finding, "slow_links").value == len(rows)
    assert evidence_of(finding, "data_moved").value == pytest.approx(moved / 1e6, abs=0.06)
    assert evidence.peers
    assert re.findall(r"([\d.]+) GB/s", finding.title) == [f"{evidence.value:.1f}", f"{evidence.peers:.1f}"]


def _share_of_step(part: str, key: str) -> Callable[[Shown, Finding], None]:
    """A whole cluster shows the part of its mean step, as the bars do; one rank what it needs more than its peers."""

    def check(run: Shown, finding: Finding) -> None:
        step = run.diagnosis.run.step_ms.median
        assert step
        found = [evidence for evidence in finding.evidence if evidence.key == key]
        if found:
            mean = run.report.tables["cluster_breakdown"].numbers
            assert found[0].value == round(float(mean[part][0]), 3)
            assert percent_of(finding.title) == round(100 * float(mean[part][0] / mean["duration"][0]))
        else:
            _, row = _self_time(run, finding)
            assert percent_of(finding.title) == round(100 * (row["self_time"] - row["reference"]) / step)

    return check


def _slow_operator(run: Shown, finding: Finding) -> None:
    [operator], evidence = finding.subject.operators, evidence_of(finding, "operator_mean")
    rows = [
        row for rank in finding.subject.ranks for row in run.rows("operators", rank=rank) if row["type"] == operator
    ]
    worst = max(rows, key=lambda row: row["excess"])
    assert (evidence.value, evidence.peers) == (round(worst["mean"], 4), round(worst["reference"], 4))
    assert percent_of(finding.title) == round(100 * worst["excess"])


def _memory_pressure(run: Shown, finding: Finding) -> None:
    worst = max(run.rows("memory"), key=lambda row: row["share"])
    assert evidence_of(finding, "peak_memory_share").value == round(100 * worst["share"], 1)
    assert percent_of(finding.title) == round(100 * worst["share"])
    assert max(column(run.report.tables["memory"], "share").values()) == same(worst["share"])


def _memory_imbalance(run: Shown, finding: Finding) -> None:
    worst = max(run.rows("memory"), key=lambda row: row["excess"] or 0)
    evidence = evidence_of(finding, "peak_memory")
    assert (evidence.value, evidence.peers) == (round(worst["peak"] / 2**30, 2), round(worst["reference"] / 2**30, 2))
    assert percent_of(finding.title) == round(100 * worst["excess"])
    assert column(run.report.tables["memory"], "excess")[worst["rank"]] == same(worst["excess"])


def _stage_imbalance(run: Shown, finding: Finding) -> None:
    worst = max((one for one in finding.evidence if one.key == "stage_self_time"), key=lambda one: one.value)
    assert worst.peers and percent_of(finding.title) == round(100 * (worst.value / worst.peers - 1))


def _uneven_work(run: Shown, finding: Finding) -> None:
    """By the rows that were dealt, where shapes or payloads tell them; else by the time of the slowest rank."""
    by_rows = any(evidence.key == "uneven_peak" for evidence in finding.evidence)
    _same_percentage("uneven_peak" if by_rows else "slowest_over_mean")(run, finding)


def _same_percentage(key: str) -> Callable[[Shown, Finding], None]:
    def check(run: Shown, finding: Finding) -> None:
        assert f"{round(evidence_of(finding, key).value)} %" in finding.title

    return check


def _contention(run: Shown, finding: Finding) -> None:
    evidence = finding.evidence[0]
    assert evidence.peers and percent_of(finding.title) == pytest.approx(
        100 * (1 - evidence.value / evidence.peers), abs=0.6
    )


def _comm_exposed(run: Shown, finding: Finding) -> None:
    step = run.diagnosis.run.step_ms.median
    assert step and percent_of(finding.title) == round(100 * finding.evidence[0].value / step)


def _small_packets(run: Shown, finding: Finding) -> None:
    packets = run.report.tables["packets"]
    at = list(packets.texts["transport"]).index(finding.subject.operators[0])
    rate = packets.numbers["total_bytes"][at] / packets.numbers["total_time"][at] / 1e6
    assert evidence_of(finding, "bandwidth").value == round(rate, 2)


def _cpu_operators(run: Shown, finding: Finding) -> None:
    times = [
        sum(row["time"] for row in run.rows("operators", rank=rank) if row["core"] == "AI_CPU") for rank in range(8)
    ]
    assert evidence_of(finding, "ai_cpu_time").value == pytest.approx(np.mean(times), abs=1e-3)


def _one_off(run: Shown, finding: Finding) -> None:
    evidence, steps = finding.evidence[0], run.diagnosis.run.step_ms
    assert evidence.peers == steps.median and evidence.value == steps.max


CHECKS: dict[str, Callable[[Shown, Finding], None]] = {
    "slow-rank": _slow_rank,
    "frequency-drop": _frequency_drop,
    "slow-host": _slow_host,
    "slow-link": _slow_link,
    "slow-nic": _network,
    "slow-network": _network,
    "slow-operator": _slow_operator,
    "input-bound": _share_of_step("data", "input_wait"),
    "host-bound": _share_of_step("free", "idle_between_kernels"),
    "memory-pressure": _memory_pressure,
    "memory-imbalance": _memory_imbalance,
    "stage-imbalance": _stage_imbalance,
    "load-imbalance": _uneven_work,
    "expert-imbalance": _uneven_work,
    "jitter": _same_percentage("slowest_over_mean"),
    "pipeline-bubble": _same_percentage("pipeline_idle_share"),
    "bandwidth-contention": _contention,
    "comm-exposed": _comm_exposed,
    "small-packets": _small_packets,
    "cpu-operators": _cpu_operators,
    "one-off-stall": _one_off,
    "periodic-stall": _one_off,
}
