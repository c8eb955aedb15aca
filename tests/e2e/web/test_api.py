"""What the API answers, against the files themselves and against the command line."""

from __future__ import annotations

import csv
import io
import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from paceline.diagnosis.context import DiagnosisContext
from paceline.diagnosis.what_if import apply_fix
from paceline.run.run import Run
from paceline.web.tables import TABLES
from support.reader_helpers import needs_fixtures
from support.web.servers import Serve, Server


def recorded(base: Path, rank: int) -> list[dict[str, str]]:
    """A rank's step_trace_time.csv, read without Paceline."""
    folder = next(base.glob(f"llama-16/*_{10000 + rank}_*"))
    with next(folder.rglob("step_trace_time.csv")).open() as file:
        return list(csv.DictReader(file))


def test_the_list_names_every_run_and_searches(server: Server) -> None:
    assert {"llama-16", "llama-16-fixed", "team/mixtral-64", "large-1024"} <= set(server.ids())
    found = server.get("/runs", q="MIXTRAL")
    assert [run["name"] for run in found["runs"]] == ["team/mixtral-64"] and found["total"] == 1


def test_the_diagnosis_comes_in_both_languages(server: Server) -> None:
    run = server.ready("llama-16")
    assert "Rank 5" in server.get(f"/runs/{run}")["worst"]
    assert "5 号卡" in server.get(f"/runs/{run}", lang="zh")["worst"]
    whole = server.get(f"/runs/{run}/overview", lang="zh")
    assert whole["schema"] == "paceline.report/1" and "5 号卡" in whole["diagnoses"]["zh"]["findings"][0]["title"]


def test_step_times_are_those_of_the_files(server: Server, base: Path) -> None:
    run = server.ready("llama-16")
    rows = {row["rank"]: row for row in server.rows(run, "step-trace", limit=100)}
    assert len(rows) == 16
    for rank in (0, 5, 15):
        steps = recorded(base, rank)
        computing = statistics.fmean(float(step["Computing"]) for step in steps) / 1e3
        assert rows[rank]["compute"] + rows[rank]["overlapped"] == pytest.approx(computing, rel=1e-6)
    one = server.rows(run, "step-trace", step=2, limit=100)
    second = next(step for step in recorded(base, 5) if step["Step"] == "2")
    slow = next(row for row in one if row["rank"] == 5)
    assert slow["compute"] + slow["overlapped"] == pytest.approx(float(second["Computing"]) / 1e3)


def test_pages_follow_each_other_and_unknown_values_come_last(server: Server) -> None:
    run = server.ready("large-1024")
    first = server.rows(run, "step-trace", sort="-self_time", limit=100)
    second = server.rows(run, "step-trace", sort="-self_time", limit=100, offset=100)
    times = [row["self_time"] for row in first + second]
    assert times == sorted(times, reverse=True) and len({row["rank"] for row in first + second}) == 200
    assert server.get(f"/runs/{run}/tables/step-trace", offset=1020)["total"] == 1024
    assert server.get(f"/runs/{run}/tables/step-trace", offset=5000)["total"] == 1024
    assert first[0]["rank"] == 517


def test_filters_narrow_and_wrong_ones_are_refused(server: Server) -> None:
    run = server.ready("llama-16")
    assert {row["host"] for row in server.rows(run, "step-trace", host="node2")} == {"node2"}
    assert {row["stage"] for row in server.rows(run, "step-trace", stage=1)} == {1}
    group = next(row for row in server.rows(run, "groups", rank=5) if row["kind"] == "tp")
    assert {row["rank"] for row in server.rows(run, "step-trace", group=group["group"])} == {4, 5}
    assert {(row["src"], row["dst"]) for row in server.rows(run, "links", src=3, dst=5)} == {(3, 5)}
    assert {row["transport"] for row in server.rows(run, "links", transport="RDMA")} == {"RDMA"}
    answer = server.client.get(f"/runs/{run}/tables/step-trace", params={"src": 1})
    assert answer.status_code == 400 and "cannot be filtered by src" in answer.json()["error"]
    assert server.client.get(f"/runs/{run}/tables/operators").status_code == 400
    assert (
        server.client.get(f"/runs/{run}/tables/step-trace", params={"sort": "rank; DROP TABLE steps"}).status_code
        == 400
    )


def test_the_slow_link_is_last_among_its_kind(server: Server) -> None:
    run = server.ready("llama-16")
    slowest = server.rows(run, "links", sort="ratio", limit=1)[0]
    assert (slowest["src"], slowest["dst"]) == (3, 5) and slowest["ratio"] < 0.6
    assert slowest["bandwidth"] == pytest.approx(slowest["bytes"] / slowest["time"] / 1e6)


def test_who_came_last_holds_the_others_up(server: Server) -> None:
    run = server.ready("llama-16")
    meeting = server.rows(run, "collectives", sort="-waited", limit=1)[0]
    arrivals = server.rows(run, "arrivals", op=meeting["op"], group=meeting["group"], sequence=meeting["sequence"])
    assert len(arrivals) == meeting["members"]
    late = {row["rank"]: row["late"] for row in arrivals}
    assert max(late, key=lambda rank: late[rank]) == meeting["last_rank"]
    assert max(late.values()) == pytest.approx(meeting["spread"])
    assert sum(row["waited"] for row in arrivals) == pytest.approx(meeting["waited"])


def test_operators_are_compared_with_peers(server: Server) -> None:
    run = server.ready("llama-16")
    slow = server.rows(run, "operators", rank=5)[0]
    assert slow["type"] == "MatMulV2" and slow["excess"] == pytest.approx(0.5, abs=0.05)
    healthy = server.rows(run, "operators", rank=6)[0]
    assert abs(healthy["excess"]) < 0.05
    named = server.rows(run, "operators", rank=5, level="name", q="matmul")
    assert named and all("MatMul" in row["name"] for row in named)


def test_tables_are_exported_whole(server: Server) -> None:
    run = server.ready("large-1024")
    answer = server.client.get(f"/runs/{run}/tables/step-trace/csv", params={"sort": "rank"})
    rows = list(csv.reader(io.StringIO(answer.text)))
    assert rows[0][:2] == ["rank", "host"] and "self_time (ms)" in rows[0]
    assert [int(row[0]) for row in rows[1:]] == list(range(1024))
    assert "attachment" in answer.headers["content-disposition"]


@pytest.mark.parametrize("name", ["llama-16", "team/mixtral-64", "large-1024"])
def test_every_table_of_every_size_answers(server: Server, name: str) -> None:
    run = server.ready(name)
    meeting = server.rows(run, "collectives", limit=1)[0]
    values: dict[str, Any] = {
        "rank": 1,
        "op": meeting["op"],
        "group": meeting["group"],
        "sequence": meeting["sequence"],
    }
    for table in TABLES.values():
        page = server.get(f"/runs/{run}/tables/{table.name}", **{need: values[need] for need in table.needs})
        assert [column["name"] for column in page["columns"]] == list(table.names)


def test_what_if_is_what_the_command_says(server: Server, base: Path, tmp_path: Path) -> None:
    run = server.ready("llama-16")
    answer = server.get(f"/runs/{run}/what-if", fix=["rank:5"])
    with Run(base / "llama-16", store=tmp_path) as opened:
        context = DiagnosisContext(opened)
        gain = context.gain(apply_fix(context, context.replay.costs, "rank:5"))
    assert answer["step_ms_fixed"] == pytest.approx(gain.step_ms_fixed, abs=0.001)
    assert answer["percent"] > 5
    before = server.get(f"/runs/{run}/what-if")
    assert before["holders"][0]["rank"] == 5 and answer["holders"][0]["rank"] != 5
    offered = [fix["fix"] for fix in server.get(f"/runs/{run}/fixes")["fixes"]]
    assert "rank:5" in offered and "link:3-5" in offered
    assert server.client.get(f"/runs/{run}/what-if", params={"fix": "rank:99"}).status_code == 400


def test_two_runs_are_compared(server: Server) -> None:
    before, after = server.ready("llama-16"), server.ready("llama-16-fixed")
    result = server.get("/compare", before=before, after=after)
    assert result["step"]["verdict"] == "faster" and result["same_ranks"]
    fates = {fate["id"]: fate["status"] for fate in result["findings"]}
    assert fates["slow-rank"] == "gone" and fates["slow-link"] == "still"
    assert result["tables"]["ranks"] == {"rows": 16, "changed": 1}


def test_changes_are_sorted_paged_and_exported_by_the_server(server: Server) -> None:
    pair = {"before": server.ready("llama-16"), "after": server.ready("llama-16-fixed")}
    changed = server.get("/compare/tables/ranks", **pair, verdict="changed")
    names = [column["name"] for column in changed["columns"]]
    (faster,) = [dict(zip(names, row, strict=True)) for row in changed["rows"]]
    assert faster["rank"] == 5 and faster["verdict"] == "faster" and faster["place"] == 1
    # Rank 5 computed 1.5 times as long before; its own time is all of its computing and a little else.
    assert faster["change"] == pytest.approx(faster["after"] / faster["before"] - 1) and -0.35 < faster["change"] < -0.2
    pages = [server.get("/compare/tables/ranks", **pair, sort="-rank", limit=10, offset=at) for at in (0, 10)]
    assert [row[0] for page in pages for row in page["rows"]] == list(range(15, -1, -1)) and pages[1]["total"] == 16
    links = server.get("/compare/tables/links", **pair, q="13 → 5")
    assert [row[:2] for row in links["rows"]] == [[13, 5]] and links["rows"][0][2] in ("HCCS", "RDMA")
    text = server.client.get("/compare/tables/operators/csv", params=pair).text
    assert text.startswith("name,before (ms),after (ms),change (fraction)") and "MatMul" in text
    assert server.get("/compare/tables/phases", **pair, sort="place")["rows"][0][0] == "step"


def test_wrong_questions_about_changes_are_told(server: Server) -> None:
    pair = {"before": server.ready("llama-16"), "after": server.ready("llama-16-fixed")}
    for path, query, status in (
        ("ranks", {"sort": "nothing"}, 400),
        ("ranks/csv", {"sort": "nothing"}, 400),
        ("ranks", {"verdict": "odd"}, 422),
        ("nothing", {}, 422),
        ("ranks", {"after": "nobody"}, 404),
        ("ranks", {"limit": 5000}, 422),
    ):
        answer = server.client.get(f"/compare/tables/{path}", params=pair | query)
        assert answer.status_code == status, (path, query, answer.text)


def test_work_is_counted_from_matrix_products_where_it_is_not_recorded(server: Server, base: Path) -> None:
    run = server.ready("llama-16")
    work = {row["rank"]: row for row in server.rows(run, "flops", limit=100)}
    assert len(work) == 16 and {row["basis"] for row in work.values()} == {"matrix products"}
    operators = server.rows(run, "operator-flops", rank=0, limit=100)
    assert work[0]["flops"] == pytest.approx(sum(row["flops"] for row in operators))
    assert operators[0]["name"].startswith("MatMulV2 [") and "] × [" in operators[0]["name"]
    step = next(row for row in server.rows(run, "step-trace", rank=0))["duration"]
    assert work[0]["flops_per_s"] == pytest.approx(work[0]["flops"] / step * 1e3, rel=1e-6)
    assert work[0]["utilisation"] is None
    assert server.get(f"/runs/{run}/cards/0")["has"]["flops_counted"] == 1 + len(operators)


def test_utilisation_is_known_when_the_cards_are(serve: Serve, base: Path, tmp_path: Path) -> None:
    profile = tmp_path / "hardware.toml"
    profile.write_text('generation = "910B3"\n')
    server = serve(base, "--hardware", str(profile))
    run = server.ready("llama-16")
    for row in server.rows(run, "flops", limit=100):
        assert row["utilisation"] == pytest.approx(row["flops_per_s"] / 294.9e12)  # BF16


def test_the_overview_is_the_same_for_clients_that_cannot_unpack(server: Server) -> None:
    run = server.ready("llama-16")
    plain = server.client.get(f"/runs/{run}/overview", headers={"accept-encoding": "identity"})
    packed = server.client.get(f"/runs/{run}/overview", headers={"accept-encoding": "gzip"})
    assert "content-encoding" not in plain.headers and packed.headers["content-encoding"] == "gzip"
    assert plain.json() == packed.json()


def test_what_one_view_needs_is_asked_for_apart(server: Server) -> None:
    run = server.ready("llama-16")
    tables = server.get(f"/runs/{run}/overview")["tables"]
    assert {"ranks", "breakdown", "steps"} <= set(tables)
    assert not {"arrivals", "operators", "operator_times", "links"} & set(tables)
    assert set(server.get(f"/runs/{run}/overview/operators")["tables"]) == {
        "operators",
        "operator_times",
        "operator_links",
        "operator_transports",
        "operator_packets",
    }
    assert len(server.get(f"/runs/{run}/overview/arrivals")["tables"]["arrivals"]["rank"]) == 16
    assert server.client.get(f"/runs/{run}/overview/ranks").status_code == 422


def test_the_visible_part_is_exported_for_perfetto(server: Server) -> None:
    run = server.timeline("llama-16")
    answer = server.client.get(f"/runs/{run}/timeline/export", params={"begin": 0, "end": 5_000_000, "lanes": "0-3"})
    trace = json.loads(answer.text)
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    sums = server.get(f"/runs/{run}/timeline/sums", begin=0, end=5_000_000, lanes="0-3")
    assert len(events) == sums["events"] > 0
    assert all(event["ts"] <= 5_000 for event in events)
    named = {event["args"]["name"] for event in trace["traceEvents"] if event["ph"] == "M"}
    assert {"rank 0", "steps", "computing"} <= named


def test_the_critical_path_runs_through_the_slow_rank(server: Server) -> None:
    run = server.timeline("llama-16")
    answer = server.client.get(f"/runs/{run}/timeline/path")
    length = int.from_bytes(answer.content[4:8], "little")
    header = json.loads(answer.content[8 : 8 + length])
    assert header["rows"] > 10 and header["kinds"] == ["work", "transfer", "wait"]


def test_a_run_that_is_not_ready_says_how_far_it_is(server: Server) -> None:
    run = server.ids()["team/mixtral-64"]
    answer = server.client.get(f"/runs/{run}/tables/step-trace")
    if answer.status_code != 200:
        assert answer.status_code == 409 and answer.json()["phase"] in ("queued", "reading", "examining")
    server.until(run)
    assert server.client.get("/runs/nothing-123456").status_code == 404
    assert server.client.get(f"/runs/{run}/cards/9999").status_code == 404


@needs_fixtures
def test_real_recordings_answer_everywhere(server: Server) -> None:
    for name in [name for name in server.ids() if name.startswith("real/")]:
        run = server.ready(name)
        ranks = [row["rank"] for row in server.rows(run, "step-trace", limit=1)] or [0]
        for path in (
            "overview",
            "fixes",
            "charts/breakdown",
            "charts/links",
            "charts/self-time",
            "charts/resources",
            "charts/communication",
            f"charts/memory?rank={ranks[0]}",
            f"cards/{ranks[0]}",
        ):
            answer = server.client.get(f"/runs/{run}/{path}")
            assert answer.status_code == 200, (name, path, answer.text)


def test_nothing_is_written_below_the_served_directory(server: Server, base: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (base / "llama-16").rglob("*")}
    run = server.timeline("llama-16")
    server.client.post(f"/runs/{run}/open", params={"again": "true"})
    server.until(run)
    assert {path: path.stat().st_mtime_ns for path in (base / "llama-16").rglob("*")} == before
