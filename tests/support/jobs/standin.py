"""A stand-in for ModelArts' v2 interface on loopback: real HTTP, real signatures, real processes, faults on request."""

from __future__ import annotations

import json
import re
import socket
import threading
import uuid
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from support.jobs.containers import CloudJob
from support.jobs.images import TORCH_IMAGE
from support.jobs.signing import refusal
from support.storage.servers import S3Server

PROJECT = "0123456789abcdef0123456789abcdef"
_PREVIEW = 5 << 20
_ENGINES = (
    "mindspore_1.3.0-cann_5.0.2-py_3.7-euler_2.8.3-aarch64",
    "mindspore_2.3.0-cann_8.0.rc1-py_3.9-euler_2.10.7-aarch64",
    "pytorch_2.1.0-cann_8.0.rc1-py_3.9-euler_2.10.7-aarch64",
    "mindspore_2.3.0-cann_8.0.rc1-py_3.9-euler_2.10.7-x86_64",
    TORCH_IMAGE,
)
_OFFERS: dict[tuple[str, str], Any] = {
    ("GET", "/training-job-flavors"): {
        "total_count": 4,
        "flavors": [
            {
                "flavor_id": f"modelarts.kat1.{cards if cards > 1 else ''}xlarge",
                "flavor_name": f"{cards}*Ascend",
                "flavor_type": "Ascend",
                "flavor_info": {"max_num": 16, "npu": {"unit_num": cards, "product_name": "snt9"}},
            }
            for cards in (1, 2, 4, 8)
        ],
    },
    ("GET", "/training-job-engines"): {
        "total": len(_ENGINES),
        "items": [{"engine_name": "Ascend-Powered-Engine", "engine_version": version} for version in _ENGINES],
    },
    ("GET", "/pools"): {
        "apiVersion": "v2",
        "kind": "PoolList",
        "items": [
            {
                "apiVersion": "v2",
                "kind": "Pool",
                "metadata": {"name": "pool-1", "labels": {"os.modelarts/name": "team"}},
                "status": {"phase": "Running"},
            }
        ],
    },
}
"""What the service lists; its shapes are those that the SDK parses."""


@dataclass
class Fault:
    """The next `count` requests that match: a status, or "lost" (acted upon, never answered) or "cut" (not even that)."""

    pattern: str
    what: int | str
    count: int = 1


class StandIn:
    def __init__(self, directory: Path, s3: S3Server) -> None:
        self.directory, self.s3 = directory, s3
        self.keys = {s3.key: s3.secret}
        self.tokens: set[str] | None = None
        """Temporary keys: only these tokens are taken."""
        self.jobs: dict[str, CloudJob] = {}
        self.faults: list[Fault] = []
        self.seen: list[str] = []
        """METHOD path of every request that was taken."""
        self.refused: list[str] = []
        self.preview = _PREVIEW
        self.gone = False
        self._lock = threading.Lock()
        self.port = 0
        self.back()
        self.endpoint = f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        for job in list(self.jobs.values()):
            job.close()
        self.away()

    def away(self) -> None:
        """Nobody answers any more, on connections that are open neither; jobs go on."""
        self.gone = True
        self._server.shutdown()
        self._server.server_close()

    def back(self) -> None:
        self.gone = False
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), _handler(self))
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def fault(self, request: str) -> int | str | None:
        with self._lock:
            for fault in self.faults:
                if fault.count > 0 and re.search(fault.pattern, request):
                    fault.count -= 1
                    return fault.what
        return None

    def create(self, body: dict[str, Any]) -> tuple[int, Any]:
        for section, name in (("metadata", "name"), ("algorithm", "code_dir"), ("spec", "resource")):
            if name not in body.get(section, {}):
                return 400, {"error_msg": f"{section}.{name} is missing", "error_code": "ModelArts.2752"}
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", body["metadata"]["name"]):
            return 400, {"error_msg": "invalid name", "error_code": "ModelArts.2753"}
        job = CloudJob(body, self.directory, self.s3)
        self.jobs[job.id] = job
        answer = job.answer()
        job.start()
        return 201, answer

    def search(self, body: dict[str, Any]) -> tuple[int, Any]:
        """Names that contain the word, as the real one searches."""
        words = [value for each in body.get("filters", ()) if each["key"] == "name" for value in each["value"]]
        found = sorted(self.jobs.values(), key=lambda job: job.created, reverse=True)
        found = [job for job in found if all(word in job.body["metadata"]["name"] for word in words)]
        offset, limit = body.get("offset", 0), body.get("limit", 10)
        page = [job.answer() for job in found[offset : offset + limit]]
        return 200, {"total": len(found), "count": len(page), "limit": limit, "offset": offset, "items": page}

    def of_job(self, method: str, job: CloudJob, rest: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        task = re.search(r"worker-\d+", rest)
        if (method, rest) == ("GET", ""):
            return 200, job.answer()
        if (method, rest) == ("DELETE", ""):
            job.close()
            del self.jobs[job.id]
            return 202, None
        if (method, rest) == ("POST", "/actions") and body == {"action_type": "terminate"}:
            job.stop()
            return 202, job.answer()
        if rest == "/events":
            limit = int(query.get("limit", ["50"])[0])
            return 200, {"total": len(job.events), "limit": limit, "offset": 0, "events": job.events[:limit]}
        if rest == "/tasks":
            return 200, [{"task": name, "ip": "172.16.0.5", "host_ip": "192.0.2.5"} for name in job.tasks]
        if task and rest == f"/tasks/{task[0]}/logs/preview":
            return self._log(job.log(task[0]))
        if task and rest == f"/logs/{task[0]}":
            lines = job.log(task[0]).read_text().splitlines(True)[-int(query.get("lines", ["50"])[0]) :]
            return 200, {"start_line": "0", "end_line": str(len(lines)), "lines": len(lines), "content": "".join(lines)}
        if task and rest == f"/metrics/{task[0]}":
            used = 40.0 + 20.0 * int(task[0].removeprefix("worker-"))
            found = {"cpuUsage": [50.0, -1.0], "npuUtil": [used, used + 20.0, -1.0], "npuMemUsage": [80.0]}
            return 200, {"metrics": [{"metric": name, "value": values} for name, values in found.items()]}
        return 400, {"error_msg": f"unknown request {method} {rest}", "error_code": "ModelArts.0104"}

    def _log(self, path: Path) -> tuple[int, Any]:
        data = path.read_bytes() if path.exists() else b""
        end = data[-self.preview :]
        return 200, {"content": end.decode(errors="replace"), "current_size": len(end), "full_size": len(data)}

    def answer(self, method: str, target: str, body: Any) -> tuple[int, Any]:
        parts = urlsplit(target)
        base = f"/v2/{PROJECT}"
        path = parts.path.removeprefix(base)
        if not parts.path.startswith(base):
            return 403, {"error_msg": "no such project", "error_code": "ModelArts.0010"}
        if (method, path) == ("POST", "/training-jobs"):
            return self.create(body)
        if (method, path) == ("POST", "/training-job-searches"):
            return self.search(body)
        if (method, path) in _OFFERS:
            return 200, _OFFERS[method, path]
        found = re.fullmatch(r"/training-jobs/([^/]+)(/.*)?", path)
        if found and found[1] in self.jobs:
            return self.of_job(method, self.jobs[found[1]], found[2] or "", parse_qs(parts.query), body)
        return 404, {"error_msg": "Training job does not exist.", "error_code": "ModelArts.2750"}


def _handler(standin: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def handle_any(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            request = f"{self.command} {urlsplit(self.path).path}"
            fault = "cut" if standin.gone else standin.fault(request)
            if fault == "cut":
                self._hang_up()
                return
            headers = {name.lower(): value for name, value in self.headers.items()}
            why = refusal(self.command, self.path, headers, data, standin.keys, standin.tokens)
            if why:
                standin.refused.append(f"{request}: {why}")
                self._send(
                    401,
                    {
                        "error_msg": f"Incorrect IAM authentication information: {why}",
                        "error_code": "APIGW.0301",
                        "request_id": uuid.uuid4().hex,
                    },
                )
                return
            if isinstance(fault, int):
                self._send(fault, {"error_msg": "on purpose", "error_code": f"APIGW.{fault}"})
                return
            standin.seen.append(request)
            code, answer = standin.answer(self.command, self.path, json.loads(data) if data else None)
            if fault == "lost":
                self._hang_up()
                return
            self._send(code, answer)

        def _send(self, code: int, answer: Any) -> None:
            body = b"" if answer is None else json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("X-Request-Id", uuid.uuid4().hex)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _hang_up(self) -> None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

        do_GET = do_POST = do_DELETE = do_PUT = handle_any

    return Handler
