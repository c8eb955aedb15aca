"""Network test mode: `bench send` to a real `bench tester`, through bad weather and with bad guests."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import msgspec
import pytest

from paceline.bench.aisbench_tester.send_result import report_of, send
from paceline.bench.aisbench_tester.tester_config import load_tester
from paceline.core.errors import PacelineError, UsageError
from paceline.storage.store_errors import TransientError
from paceline.storage.transfer.retry import Backoff
from support.bench.result_trees import a_result, paceline, written

QUICK = Backoff(first_wait=0.01, longest_wait=0.05, patience=20)
TOKEN = "a-token-of-enough-letters"


@dataclass
class RunningTester:
    port: int
    directory: Path
    process: subprocess.Popen[str]

    def config(self, path: Path, **more: object) -> Path:
        """ais-bench's config.json."""
        said = {
            "testid": "20210126-ljp0IY",
            "Mode": "training",
            "Model": "resnet50_v1.5",
            "Divsion": "close",
            "Scenario": "generic",
            "test_object_type": "single",
            "tester_server_ip": "127.0.0.1",
            "tester_server_port": str(self.port),
        }
        path.write_text(json.dumps(said | more))
        return path


@pytest.fixture
def tester(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RunningTester]:
    directory = tmp_path / "kept"
    token = getattr(request, "param", None)
    environment = os.environ | ({"PACELINE_TESTER_TOKEN": token} if token else {})
    command = [sys.executable, "-m", "paceline.cli.main", "bench", "tester", str(directory), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    line = process.stderr.readline()
    assert "tester at http://127.0.0.1:" in line, line
    yield RunningTester(int(line.split("127.0.0.1:")[1].split(",")[0]), directory, process)
    process.terminate()
    process.wait()
    process.stderr.close()


def test_a_result_is_sent_checked_and_kept_once(tester: RunningTester, tmp_path: Path) -> None:
    result = written(a_result((450.58182754928634,)), tmp_path / "result.json")
    (tmp_path / "system.json").write_text('{"cpu": "Kunpeng 920"}')
    config = tester.config(tmp_path / "config.json")
    for _ in range(2):
        done = paceline("bench", "send", result, "--config", config, "--system", tmp_path / "system.json")
        assert done.returncode == 0 and "20210126-ljp0IY-2026" in done.stdout, done.stderr
    (kept,) = tester.directory.glob("*.json")
    said = json.loads(kept.read_text())
    assert said["schema"] == "paceline.bench-report/1"
    assert (said["test_id"], said["mode"], said["model"]) == ("20210126-ljp0IY", "training", "resnet50_v1.5")
    assert (said["division"], said["scenario"], said["test_object_type"]) == ("close", "generic", "single")
    assert said["system"] == {"cpu": "Kunpeng 920"}
    assert said["train_result_info"]["throughput_ratio"] == "450.58182754928634"
    assert said["train_result_info"]["total_start_time"] == "2026-01-01 00:00:00"
    assert said["train_result_info"]["average_power"] is None
    with httpx.Client(base_url=f"http://127.0.0.1:{tester.port}/api/v1", timeout=600) as client:
        assert client.get("/results").json() == {"results": [kept.stem]}
        assert client.get(f"/results/{kept.stem}").json() == said


def test_bad_guests_are_told_why_and_nothing_is_kept(tester: RunningTester, tmp_path: Path) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{tester.port}/api/v1", timeout=600) as client:
        assert client.post("/results", content=b"{").status_code == 422
        assert client.post("/results", json={"schema": "paceline.bench-report/1"}).status_code == 422
        assert client.post("/results", content=b"x" * (17 << 20)).status_code == 413
        assert client.post("/results", content=b"[" * 200_000).status_code == 422
        assert client.get("/results/..%2F..%2Fetc%2Fpasswd").status_code == 404
        assert client.post("/results", json={}, headers={"Host": "elsewhere.example"}).status_code == 421
        assert client.post("/results", json={}, headers={"Origin": "http://elsewhere.example"}).status_code == 403
    config = load_tester(tester.config(tmp_path / "c.json", testid="../up"))
    with pytest.raises(PacelineError, match="letters, digits"):
        send(report_of(a_result(), config), config, backoff=QUICK)
    config = load_tester(tester.config(tmp_path / "c.json"))
    send(report_of(a_result((1.0,)), config), config, backoff=QUICK)
    with pytest.raises(PacelineError, match="a different result with this name already exists"):
        send(report_of(a_result((2.0,)), config), config, backoff=QUICK)
    assert len(list(tester.directory.iterdir())) == 1


@pytest.mark.parametrize("tester", [TOKEN], indirect=True)
def test_a_token_is_needed_where_one_is_set(
    tester: RunningTester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_tester(tester.config(tmp_path / "config.json"))
    with pytest.raises(PacelineError, match="401") as refused:
        send(report_of(a_result(), config), config, backoff=QUICK)
    assert "PACELINE_TESTER_TOKEN" in (refused.value.hint or "")
    monkeypatch.setenv("PACELINE_TESTER_TOKEN", TOKEN)
    send(report_of(a_result(), config), config, backoff=QUICK)
    elsewhere = msgspec.structs.replace(config, tester_server_ip="192.0.2.1")
    with pytest.raises(UsageError, match="would be sent unencrypted"):
        send(report_of(a_result(), elsewhere), elsewhere, backoff=QUICK)


def test_sending_goes_on_through_errors_and_lost_connections(tmp_path: Path) -> None:
    """500, a connection cut in the middle, then success."""
    bodies: list[bytes] = []

    class Moody(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            if len(bodies) == 1:
                self.send_error(503)
            elif len(bodies) == 2:
                self.connection.shutdown(socket.SHUT_RDWR)
            else:
                answer = b'{"name": "kept"}'
                self.send_response(201)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Moody) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        (tmp_path / "c.json").write_text(json.dumps({"testid": "t", "tester_server_port": server.server_port}))
        config = load_tester(tmp_path / "c.json")
        assert send(report_of(a_result(), config), config, backoff=QUICK) == "kept"
        server.shutdown()
    assert len(bodies) == 3 and len(set(bodies)) == 1
    with pytest.raises(TransientError, match="could not connect") as lost:
        send(report_of(a_result(), config), config, backoff=Backoff(first_wait=0.01, patience=0.05))
    assert "bench send" in (lost.value.hint or "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "broken JSON"),
        ("[]", "a JSON object"),
        ('{"tester_server_ip": "127.0.0.1"}', "test_id"),
        ('{"testid": "t", "tester_server_port": 70000}', "not a port"),
    ],
)
def test_a_wrong_config_is_said_with_its_file(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UsageError, match=rf"config\.json: .*{said}"):
        load_tester(tmp_path / "config.json")


def test_bench_run_sends_its_result(tester: RunningTester, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_bytes(
        (Path(__file__).parents[2] / "support" / "bench" / "workload.py").read_bytes()
    )
    tester.config(tmp_path / "config.json")
    (tmp_path / "system.json").write_text('{"hosts": 1}')
    (tmp_path / "bench.yaml").write_text(
        "job: {job_name: toy, boot_file: train.py, code_dir: code}\ntester: config.json\nsystem: system.json\n"
    )
    done = paceline("bench", "run", tmp_path / "bench.yaml", "--out", tmp_path / "out")
    assert done.returncode == 0 and "sent to http://127.0.0.1" in done.stderr, done.stderr
    (kept,) = tester.directory.glob("*.json")
    said = json.loads(kept.read_text())
    assert said["result"] == json.loads((tmp_path / "out" / "result.json").read_text())
    assert said["train_result_info"]["accuracy"] == "0.5" and said["system"] == {"hosts": 1}
