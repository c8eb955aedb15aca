"""Prometheus metrics of a running job, served on the loopback address by default."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from paceline.core.errors import UsageError
from paceline.watch.straggler import JobView, RankView

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_JOB_METRICS = (
    ("paceline_step", "Step that half of the ranks have finished.", lambda view: view.step),
    ("paceline_step_seconds", "Median step time of the last steps.", lambda view: view.step_ms / 1e3),
    ("paceline_step_trend_ratio", "Newer compared with older steps; 0.02 is 2 % longer.", lambda view: view.trend),
    ("paceline_ranks_recorded", "Ranks that record.", lambda view: len(view.ranks)),
    ("paceline_ranks_missing", "Ranks of the world without a recording.", lambda view: len(view.missing)),
    ("paceline_ranks_chronic", "Ranks that are persistently slow.", lambda view: len(view.alerts)),
)
_RANK_METRICS = (
    ("paceline_rank_step", "Last step the rank finished.", lambda rank: rank.step),
    ("paceline_rank_step_seconds", "Median step time of the rank.", lambda rank: rank.step_ms / 1e3),
    (
        "paceline_rank_own_seconds",
        "Median self time per step: step time without waiting in collectives.",
        lambda rank: rank.self_ms / 1e3,
    ),
    ("paceline_rank_peers_seconds", "Self time of its healthy peers.", lambda rank: rank.reference_ms / 1e3),
    ("paceline_rank_data_wait_seconds", "Median wait for data per step.", lambda rank: rank.data_ms / 1e3),
    (
        "paceline_rank_excess_ratio",
        "Excess of its self time over its peers; 0.2 is 20 % more.",
        lambda rank: rank.excess,
    ),
    ("paceline_rank_chronic", "1: persistently slower than its peers.", lambda rank: int(rank.is_persistent)),
    (
        "paceline_rank_silent_seconds",
        "Seconds since its last write; 0: it still writes.",
        lambda rank: rank.silent_s,
    ),
)


def as_metrics(view: JobView) -> str:
    """The text format, version 0.0.4; unknown values are left out."""
    job = {"job": view.job}
    lines: list[str] = []
    for name, description, value in _JOB_METRICS:
        lines += _metric(name, description, [(job, value(view))])
    for name, description, of_rank in _RANK_METRICS:
        ranks = sorted(view.ranks, key=lambda rank: rank.rank)
        lines += _metric(name, description, [({**job, **_labels(rank)}, of_rank(rank)) for rank in ranks])
    return "\n".join(lines) + "\n"


class Endpoint:
    """Serves the last view that was `put` at /metrics."""

    def __init__(self, address: str) -> None:
        host, port = parse_address(address)
        self._text = ""
        endpoint = self

        class MetricsRequest(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                known = self.path.partition("?")[0] in ("/", "/metrics")
                body = endpoint._text.encode() if known else b"see /metrics\n"
                self.send_response(200 if known else 404)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass  # no log line per scrape

        try:
            self._server = ThreadingHTTPServer((host, port), MetricsRequest)
        except OSError as error:
            raise UsageError(
                f"--prometheus {address}: {error.strerror or error}", hint="choose another port"
            ) from error
        self._server.daemon_threads = True
        self.url = f"http://{host}:{self._server.server_address[1]}/metrics"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def put(self, view: JobView) -> None:
        self._text = as_metrics(view)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def parse_address(text: str) -> tuple[str, int]:
    """
    >>> parse_address("9400"), parse_address("0.0.0.0:9400")
    (('127.0.0.1', 9400), ('0.0.0.0', 9400))
    """
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"--prometheus {text}: expected PORT or HOST:PORT", hint="example: --prometheus 9400")
    return host.strip("[]") or "127.0.0.1", int(port)


def _labels(rank: RankView) -> dict[str, str]:
    return {"rank": str(rank.rank), "host": rank.host}


def _metric(name: str, description: str, samples: Iterable[tuple[dict[str, str], float]]) -> list[str]:
    known = [f"{name}{{{_format_labels(labels)}}} {value!r}" for labels, value in samples if not math.isnan(value)]
    return [f"# HELP {name} {description}", f"# TYPE {name} gauge", *known] if known else []


def _format_labels(labels: dict[str, str]) -> str:
    return ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
