"""The pages: how fast they answer and draw, and MindInsight 2.3.1 on the same data in the same run.

    python benchmarks/web.py [--quick]

1. Every API answer at 1,024 ranks after indexing: p95 of 30 requests each, limit 100 ms.
2. First view of a 1,024-rank run in headless Chromium, from the address to the findings: limit 1.5 s.
3. Drawing: heat map of 10,240 ranks and matrix of 1,024 × 1,024 links (limit 50 ms each), timeline of 5 million events
   fully zoomed out, request and drawing together (limit 300 ms). Canvas work is flushed before the clock stops.
4. MindInsight 2.3.1 (PyPI; Python 3.9): the same questions on the same 4- and 1,024-rank recordings. MindInsight reads its
   files anew for every question; we read them once ("indexed … in"), which is not part of the ratio.

`--quick` leaves MindInsight out. Numbers are wall time on whatever this machine is; the load is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import httpx
from peer import WORK
from playwright.sync_api import Page, sync_playwright

from paceline import simulate

DATA = WORK / "web-data"
PEER = "mindinsight==2.3.1"
REPEATS = 30
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="leave MindInsight out")
    arguments = parser.parse_args()
    make_data()
    print(f"load average before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    with serving() as url:
        client = httpx.Client(base_url=f"{url}/api/v1", timeout=120)
        runs = {run["name"]: run["id"] for run in listed(client)}
        for name, run in runs.items():
            print(f"indexed {name:16} in {open_run(client, run):6.1f} s")
        api_times(client, runs["ascend-1024"])
        in_browser(url, runs)
        if not arguments.quick:
            against_mindinsight(client, runs)


# -- data --------------------------------------------------------------------------------------------------------------


def make_data() -> None:
    """Simulated recordings, and exports with more ranks, links and events than anybody would simulate."""
    large = {"hosts": 128, "devices": 8, "dp": 32, "tp": 8, "pp": 4, "steps": 3, "layers": 4, "micro_batches": 4}
    _once(
        "ascend-1024",
        lambda path: simulate.simulate(
            path, simulate.ClusterSpec(**large, detail_ranks=16, seed=5), ["slow-rank:517:1.4"], "ascend-text"
        ),
    )
    _once(
        "mi-1024",
        lambda path: simulate.simulate(
            path, simulate.ClusterSpec(**large, seed=5), ["slow-rank:517:1.4"], "mindinsight"
        ),
    )
    _once(
        "mi-4",
        lambda path: simulate.simulate(
            path,
            simulate.ClusterSpec(hosts=1, devices=4, dp=2, tp=1, pp=2, steps=5, layers=4, micro_batches=4),
            ["slow-rank:2:1.3"],
            "mindinsight",
        ),
    )
    _once(
        "map-10240",
        lambda path: _tables(
            path,
            {
                "ranks": "SELECT range AS rank, 'host-' || (range // 8) AS host, range % 8 AS device FROM range(10240)",
                "steps": """SELECT rank.range AS rank, step.range + 1 AS step, 100000000 AS duration,
                    60000000 + (hash(rank.range) % 1000000)::BIGINT AS computing, 30000000 AS exposed, 10000000 AS free
                    FROM range(10240) AS rank, range(3) AS step""",
            },
        ),
    )
    _once(
        "matrix-1024",
        lambda path: _tables(
            path,
            {
                "ranks": "SELECT range AS rank, 'host-' || (range // 8) AS host, range % 8 AS device FROM range(1024)",
                "steps": "SELECT range AS rank, 1 AS step, 100000000 AS duration, 60000000 AS computing FROM range(1024)",
                "transfers": """SELECT a.range AS rank, 1 AS step, a.range AS src, b.range AS dst, 'global' AS scope,
                        if(a.range // 8 = b.range // 8, 'HCCS', 'RDMA') AS transport, 1000000 AS bytes,
                        50000 + (hash(a.range * 1024 + b.range) % 50000)::BIGINT AS duration
                        FROM range(1024) AS a, range(1024) AS b WHERE a.range <> b.range""",
            },
        ),
    )
    _once("timeline-5m", lambda path: _tables(path, {
        "ranks": "SELECT range AS rank, 'host-' || (range // 8) AS host, range % 8 AS device FROM range(64)",
        "steps": """SELECT rank.range AS rank, step.range + 1 AS step, step.range * 1000000000 AS start,
                    (step.range + 1) * 1000000000 AS end, 1000000000 AS duration, 900000000 AS computing
                    FROM range(64) AS rank, range(10) AS step""",
        "events": """SELECT event.range % 64 AS rank, 'Ascend Hardware/Stream ' || (event.range // 64 % 4) AS track,
                     'kernel_' || (hash(event.range) % 300) AS name, 'kernel' AS category,
                     (event.range // 256) * 500000 + (event.range // 64 % 4) * 100 AS start,
                     100000 + (hash(event.range) % 390000)::BIGINT AS duration FROM range(5000000) AS event""",
    }))  # fmt: skip


def _once(name: str, make: Callable[[Path], object]) -> None:
    if not (DATA / name).exists():
        make(DATA / name)


def _tables(path: Path, selects: dict[str, str]) -> None:
    """A directory as `paceline export --to parquet` writes it."""
    making = path.with_name(f".{path.name}.new")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    for table, select in selects.items():
        duckdb.execute(f"COPY ({select}) TO '{making / table}.parquet' (FORMAT parquet, COMPRESSION zstd)")
    (making / "paceline.json").write_text(json.dumps({"schema": "paceline.tables/1"}))
    making.rename(path)


# -- our server --------------------------------------------------------------------------------------------------------


@contextmanager
def serving() -> Iterator[str]:
    port = _free_port()
    environment = {**os.environ, "PACELINE_CACHE": str(WORK / "web-cache")}
    command = [sys.executable, "-m", "paceline.cli.main", "serve", str(DATA), "--port", str(port)]
    server = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def listed(client: httpx.Client) -> list[dict[str, str]]:
    while True:
        answer = client.get("/runs").json()
        if not answer["scanning"]:
            return list(answer["runs"])
        time.sleep(0.2)


def open_run(client: httpx.Client, run: str) -> float:
    began = time.monotonic()
    client.post(f"/runs/{run}/open")
    while (state := client.get(f"/runs/{run}").json()["state"])["phase"] != "ready":
        assert state["phase"] != "failed", state
        time.sleep(0.1)
    while (state := client.post(f"/runs/{run}/timeline/open").json())["phase"] not in ("ready", "failed"):
        time.sleep(0.1)
    client.get(f"/runs/{run}/what-if")  # waits for what is worked out beforehand
    return time.monotonic() - began


def api_times(client: httpx.Client, run: str) -> None:
    """Every endpoint of a run, each with questions that differ from request to request where it takes any."""
    meeting = dict(zip(*_page(client, run, "collectives"), strict=True))
    asked: list[tuple[str, Callable[[int], dict[str, object]]]] = [
        ("overview", lambda i: {"lang": ("en", "zh")[i % 2]}), ("fixes", lambda i: {}), ("cards/{i}", lambda i: {}),
        ("what-if", lambda i: {"fix": f"rank:{i}"}),
        ("charts/breakdown", lambda i: {"step": i % 3 + 1}), ("charts/communication", lambda i: {"step": i % 3 + 1}),
        ("charts/links", lambda i: {"step": i % 3 + 1} if i % 2 else {}), ("charts/own-time", lambda i: {}),
        ("charts/resources", lambda i: {}), ("charts/memory", lambda i: {"rank": i % 16}),
        ("charts/counters", lambda i: {"rank": i % 16}), ("charts/input", lambda i: {"rank": i}),
        ("timeline", lambda i: {}), ("timeline/path", lambda i: {}),
        ("timeline/slices", lambda i: {"begin": 1000 * i, "end": 90_000_000 - i, "lanes": f"{i}-{i + 200}"}),
        ("timeline/search", lambda i: {"q": ("matmul", "reduce", "send")[i % 3]}),
        ("timeline/sums", lambda i: {"begin": 0, "end": 10_000_000 + i, "lanes": "0-200"}),
        ("timeline/export", lambda i: {"begin": 0, "end": 10_000_000 + i, "lanes": "0-50"}),
    ]  # fmt: skip
    for table in client.get("/tables").json():
        needs = {need: {"rank": 5}.get(need, meeting.get(need)) for need in table["needs"]}
        names = [column["name"] for column in table["columns"]]
        asked.append((
            f"tables/{table['name']}",
            lambda i, needs=needs, names=names: {**needs, "sort": f"-{names[i % len(names)]}", "offset": i % 4},
        ))  # fmt: skip
    print(f"\nAPI at 1,024 ranks, ms over {REPEATS} requests{'':18}median      p95")
    worst = 0.0
    for path, query in asked:
        times = []
        for i in range(REPEATS):
            began = time.perf_counter()
            answer = client.get(f"/runs/{run}/{path.format(i=i)}", params=query(i))
            times.append(1e3 * (time.perf_counter() - began))
            assert answer.status_code == 200, (path, query(i), answer.text)
        p95 = statistics.quantiles(times, n=20)[-1]
        worst = max(worst, p95)
        print(f"  {path:48} {statistics.median(times):10.1f} {p95:8.1f}{'   over 100 ms' if p95 > 100 else ''}")
    print(f"  worst p95 {worst:.0f} ms, limit 100: {_verdict(worst, 100)}")


def _page(client: httpx.Client, run: str, table: str) -> tuple[list[str], list[object]]:
    page = client.get(f"/runs/{run}/tables/{table}", params={"limit": 1}).json()
    return [column["name"] for column in page["columns"]], page["rows"][0]


# -- the browser -------------------------------------------------------------------------------------------------------

MEASURES = """names => performance.getEntriesByType("measure").filter(one => names.includes(one.name))
    .map(one => one.duration)"""
FLUSH = """selector => { const canvas = document.querySelector(selector); const start = performance.now();
    canvas.getContext("2d").getImageData(0, 0, 1, 1); return performance.now() - start; }"""


def in_browser(url: str, runs: dict[str, str]) -> None:
    print("\nHeadless Chromium, ms, best of 3")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)

        def view(path: str, selector: str, measure: Callable[[Page], float]) -> float:
            times = []
            for _ in range(3):
                page = browser.new_page(viewport={"width": 1280, "height": 900})
                page.goto(url + path)
                page.locator(selector).first.wait_for()
                times.append(measure(page))
                page.close()
            return min(times)

        def first_view(path: str, selector: str) -> float:
            times = []
            for _ in range(3):
                context = browser.new_context(viewport={"width": 1280, "height": 900})
                page = context.new_page()
                began = time.perf_counter()
                page.goto(url + path)
                page.locator(selector).first.wait_for()
                times.append(1e3 * (time.perf_counter() - began))
                context.close()
            return min(times)

        def drawing(names: list[str], canvas: str) -> Callable[[Page], float]:
            def measure(page: Page) -> float:
                page.wait_for_timeout(1500)
                flush = float(page.evaluate(FLUSH, canvas))
                return max(page.evaluate(MEASURES, names)) + flush

            return measure

        def matrix(page: Page) -> float:
            page.wait_for_timeout(2500)
            flush = float(page.evaluate(FLUSH, ".matrix canvas"))
            return (
                max(page.evaluate(MEASURES, ["paceline cells"]))
                + max(page.evaluate(MEASURES, ["paceline draw"]))
                + flush
            )

        def timeline(page: Page) -> float:
            """The last request for slices and the drawing after it."""
            page.wait_for_timeout(3000)
            asked = page.evaluate(
                """() => performance.getEntriesByType("resource").filter(one => one.name.includes("/slices"))
                    .map(one => one.duration)"""
            )
            flush = float(page.evaluate(FLUSH, ".timeline canvas"))
            return max(asked) + max(page.evaluate(MEASURES, ["paceline timeline"])) + flush

        def address(name: str, page: str) -> str:
            return f"/runs/{runs[name]}/{page}"

        draw_map = drawing(["paceline draw"], ".map canvas")
        rows = [
            ("first view of 1,024 ranks", 1500, first_view(address("ascend-1024", "overview"), ".finding")),
            ("step trace of 1,024 ranks", 1500, first_view(address("ascend-1024", "steps"), "[data-table] tbody tr")),
            ("heat map, 10,240 ranks", 50, view(address("map-10240", "overview"), ".map canvas", draw_map)),
            ("matrix, 1,024 × 1,024", 50, view(address("matrix-1024", "communication?tab=matrix"), ".matrix canvas", matrix)),
            ("timeline, 5 M events", 300, view(address("timeline-5m", "timeline?open=0-63"), ".timeline canvas", timeline)),
        ]  # fmt: skip
        for name, limit, value in rows:
            print(f"  {name:48} {value:10.1f}   limit {limit}: {_verdict(value, limit)}")
        browser.close()


# -- MindInsight -------------------------------------------------------------------------------------------------------

OURS: dict[str, list[tuple[str, dict[str, object]]]] = {
    "step trace": [("charts/breakdown", {}), ("tables/step-trace", {"limit": 20})],
    "communication": [("charts/communication", {}), ("tables/communication", {"limit": 20})],
    "links": [("charts/links", {}), ("tables/links", {"limit": 20})],
    "memory and FLOPs": [("charts/resources", {})],
    "advice": [("overview", {})],
}
_BODY = {"filter_condition": {"step_id": 0}, "group_condition": {"limit": 20, "offset": 0}}
THEIRS: dict[str, list[tuple[str, str, dict[str, object] | None]]] = {
    "step trace": [("POST", "cluster-step-trace-summary", {"filter_condition": {"step_id": 0}})],
    "communication": [("POST", "search-cluster-communication", {"filter_condition": {"step_id": 0}})],
    "links": [("POST", "search-cluster-link", _BODY), ("GET", "communication-data", None)],
    "memory and FLOPs": [("GET", "cluster-peak-memory", None), ("GET", "cluster-flops", None)],
    "advice": [("GET", "summary/cluster-propose", None)],
}


def against_mindinsight(client: httpx.Client, runs: dict[str, str]) -> None:
    program = install_mindinsight()
    if program is None:
        print("\nMindInsight: no Python 3.9 found (pyenv or python3.9), left out")
        return
    port = _free_port()
    base = WORK / "mindinsight-base"
    shutil.rmtree(base, ignore_errors=True)
    for name in ("mi-4", "mi-1024"):
        shutil.copytree(DATA / name, base / name, copy_function=os.link)
    common = [str(program), "start", "--summary-base-dir", str(base), "--port", str(port)]
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    subprocess.run(
        [*common, "--workspace", str(WORK / "mindinsight")], env=environment, check=True, capture_output=True
    )
    try:
        peer = httpx.Client(base_url=f"http://127.0.0.1:{port}/v1/mindinsight/profile", timeout=300)
        for name in ("mi-4", "mi-1024"):
            _same_ranks(client, peer, name, runs[name])
            print(f"\n{name}: seconds until a page has what it shows      Paceline  MindInsight    ratio")
            totals = [0.0, 0.0]
            for question in OURS:
                ours = _best(lambda question=question, name=name: [
                    client.get(f"/runs/{runs[name]}/{path}", params=query) for path, query in OURS[question]
                ])  # fmt: skip
                theirs = _best(lambda question=question, name=name: [
                    peer.request(method, path, params={"train_id": f"./{name}"}, json=body)
                    for method, path, body in THEIRS[question]
                ], times=1 if name == "mi-1024" else 3)  # fmt: skip
                totals = [totals[0] + ours, totals[1] + theirs]
                print(f"  {question:48} {ours:8.3f} {theirs:12.3f} {theirs / ours:8.1f} ×")
            print(f"  {'all':48} {totals[0]:8.3f} {totals[1]:12.3f} {totals[1] / totals[0]:8.1f} ×")
    finally:
        subprocess.run([str(program), "stop", "--port", str(port)], env=environment, check=False, capture_output=True)


def _same_ranks(client: httpx.Client, peer: httpx.Client, name: str, run: str) -> None:
    """Both must show the same ranks, or the comparison means nothing."""
    ours = client.get(f"/runs/{run}/tables/step-trace").json()["total"]
    body = {"filter_condition": {"step_id": 0}}
    theirs = peer.post("cluster-step-trace-summary", params={"train_id": f"./{name}"}, json=body).json()["size"]
    links = peer.post("search-cluster-link", params={"train_id": f"./{name}"}, json=_BODY).json()["size"]
    assert ours == theirs and links > 0, (name, ours, theirs, links)


def _best(ask: Callable[[], list[httpx.Response]], *, times: int = 3) -> float:
    best = float("inf")
    for _ in range(times):
        began = time.perf_counter()
        answers = ask()
        best = min(best, time.perf_counter() - began)
        for answer in answers:
            assert answer.status_code == 200, (str(answer.request.url), answer.status_code, answer.text[:200])
    return best


def install_mindinsight() -> Path | None:
    target = WORK / "mindinsight-venv"
    program = target / "bin" / "mindinsight"
    if not program.exists():
        pythons = sorted((Path.home() / ".pyenv" / "versions").glob("3.9*/bin/python"))
        python = os.environ.get("PYTHON39") or (str(pythons[-1]) if pythons else shutil.which("python3.9"))
        if python is None:
            return None
        subprocess.run([python, "-m", "venv", str(target)], check=True)
        subprocess.run([str(target / "bin" / "pip"), "install", "--quiet", PEER], check=True)
    return program


def _verdict(value: float, limit: float) -> str:
    return "kept" if value <= limit else "MISSED"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int) -> None:
    for _ in range(300):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit("the server does not listen")


if __name__ == "__main__":
    main()
