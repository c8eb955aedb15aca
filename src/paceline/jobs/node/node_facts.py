"""What a node of a job is: printed as one line into the job's log by the node itself. Standard library only, Python 3.7.

It also runs in containers of ModelArts, whose Python is older and does not have Paceline.
"""

from __future__ import annotations

import json
import os
import platform
import re
import socket
import subprocess
from pathlib import Path

MARK = "PACELINE-NODE "
VARIABLE = "PACELINE_NODE_FACTS"
_PACKAGES = ("torch", "torch-npu", "mindspore", "tensorflow", "numpy", "paceline")
_PREFIXES = (
    "HCCL_",
    "NCCL_",
    "ASCEND_",
    "GLOO_",
    "MS_",
    "OMP_",
    "CUDA_",
    "TORCH_",
    "MA_",
    "VC_",
    "GLOG_",
    "SLURM_JOB_",
    "SLURM_TOPOLOGY_",
)
_SECRET = re.compile(r"KEY|SECRET|TOKEN|PASS|CREDENTIAL|AUTH", re.IGNORECASE)
_MOST = 200


def collect() -> dict[str, object]:
    """Everything that is known without loading a framework; absent where a node does not say."""
    facts: dict[str, object] = {
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "cores": _cores(),
        "memory_bytes": _memory(),
        "processor": _processor(),
        "frameworks": _frameworks(),
        "environment": _environment(),
    }
    facts.update(_ascend() or _nvidia())
    return {name: value for name, value in facts.items() if value}


def _cores() -> int | None:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _processor() -> str:
    found = re.search(r"model name\s*:\s*(.+)", _read("/proc/cpuinfo"))
    return found.group(1).strip() if found else platform.processor()


def _frameworks() -> dict[str, str]:
    try:
        from importlib.metadata import PackageNotFoundError, version
    except ImportError:  # before Python 3.8
        return {}
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            pass
    return found


def _environment() -> dict[str, str]:
    names = sorted(name for name in os.environ if name.startswith(_PREFIXES) and not _SECRET.search(name))
    return {name: os.environ[name][:_MOST] for name in names}


def _ascend() -> dict[str, object]:
    """Cards, driver, firmware and toolkit of an Ascend host."""
    listed = _run("npu-smi", "info", "-l")
    cards = re.findall(r"NPU ID\s*:\s*\d+", listed)
    if not cards and not Path("/usr/local/Ascend/driver").is_dir():
        return {}
    home = os.environ.get("ASCEND_HOME_PATH") or "/usr/local/Ascend/ascend-toolkit/latest"
    names = re.findall(r"^\|\s*\d+\s+(\S+)\s*\|", _run("npu-smi", "info"), re.MULTILINE)
    return {
        "cards": len(cards) or None,
        "card": names[0] if names else None,
        "driver": _version(_read("/usr/local/Ascend/driver/version.info")),
        "firmware": _version(_read("/usr/local/Ascend/firmware/version.info")),
        "toolkit": "CANN " + _version(_read(home + "/version.cfg")) if _read(home + "/version.cfg") else None,
        "topology": card_links(_run("npu-smi", "info", "-t", "topo")),
    }


def _nvidia() -> dict[str, object]:
    lines = _run("nvidia-smi", "--query-gpu=name,driver_version,vbios_version", "--format=csv,noheader").splitlines()
    rows = [[cell.strip() for cell in line.split(",")] for line in lines if line.count(",") == 2]
    if not rows:
        return {}
    cuda = re.search(r"CUDA Version:\s*([\d.]+)", _run("nvidia-smi"))
    return {
        "cards": len(rows),
        "card": rows[0][0],
        "driver": rows[0][1],
        "firmware": rows[0][2],
        "toolkit": "CUDA " + cuda.group(1) if cuda else None,
        "topology": card_links(_run("nvidia-smi", "topo", "-m")),
    }


def card_links(matrix: str) -> dict[str, int]:
    """How cards are connected: kind of link → number of pairs, from the matrix that npu-smi and nvidia-smi print.

    >>> card_links("      GPU0  GPU1  CPU Affinity\\nGPU0   X    NV12  0-31\\nGPU1  NV12   X    0-31")
    {'NV12': 1}
    """
    rows = [line.split() for line in re.sub(r"\x1b\[[\d;]*m", "", matrix).splitlines()]
    cards = [row for row in rows if row and re.match(r"[GN]PU\d+$", row[0]) and "X" in row]
    found = {}  # type: dict[str, int]
    for number, row in enumerate(cards):
        for kind in row[number + 2 : len(cards) + 1]:
            found[kind] = found.get(kind, 0) + 1
    return found


def _version(text: str) -> str:
    found = re.search(r"version=\[?(?:[\w.]+:)?([\w.]+)", text, re.IGNORECASE)
    return found.group(1) if found else ""


def _read(path: str) -> str:
    try:
        with Path(path).open(errors="replace") as file:
            return file.read(100000)
    except OSError:
        return ""


def _run(*words: str) -> str:
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""


if __name__ == "__main__":
    # In one write, with line ends on both sides: ranks share the log.
    os.write(1, ("\n" + MARK + json.dumps(collect(), sort_keys=True) + "\n").encode())
