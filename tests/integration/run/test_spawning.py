"""Worker processes of a script that does not guard its main part."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
from paceline.run.executors.processes import ProcessExecutor

print("begun")
print(sorted(result for _, result in ProcessExecutor(2, isolated=True).run(abs, [-1, -2, -3])))
"""


def test_a_script_runs_once(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout.split("\n", 1)) == (0, ["begun", "[1, 2, 3]\n"]), done.stderr
