"""Write a directory of wheels that installs Paceline without a network: itself, its agent, and all that they need.

    python scripts/bundle.py --platform manylinux_2_28_aarch64 --python 3.9 [--extras checkpoint,storage] [--to DIRECTORY]

Afterwards pip itself is asked, for that platform and Python and from these files alone, whether every requirement is met.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from paceline.core.agent_wheel import write_agent_wheel
from paceline.core.errors import PacelineError
from paceline.jobs.offline_wheels import SOURCE_ONLY, accepted_platforms, build_source_only, download_wheels

ROOT = Path(__file__).parents[1]
EXTRAS = "checkpoint,modelarts,perfetto,storage,web"
"""Without frames, dask and ray, which are 200 MB that few need."""
AGENT_EXTRAS = "checkpoint,commands,storage"
_PYTHON = re.compile(r"3\.(\d+)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--platform", default="manylinux_2_28_aarch64")
    parser.add_argument("--python", default="3.11")
    parser.add_argument("--extras", default=EXTRAS)
    parser.add_argument("--to", type=Path, help="default: dist/bundle-PLATFORM-py3.N")
    options = parser.parse_args()
    if not (found := _PYTHON.fullmatch(options.python)) or int(found[1]) < 8:
        sys.exit(f"bundle: --python {options.python}: expected 3.8 or newer")
    directory = options.to or ROOT / "dist" / f"bundle-{options.platform}-py{options.python}"
    try:
        print(write_bundle(directory, options.platform, options.python, options.extras))
    except PacelineError as error:
        sys.exit(f"bundle: {error}")


def write_bundle(directory: Path, platform: str, python: str, extras: str) -> str:
    """Returns the install lines, which are also in install.txt."""
    platforms = accepted_platforms(platform)
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.rglob("*.whl"):
        old.unlink()
    _say("building Paceline's wheels, and those of what is published as source only")
    whole = f"{_build(directory)}[{extras}]"
    # Apart, because pip prefers its version, VERSION+agent, where it is asked for "paceline".
    agent = write_agent_wheel(directory / "agent")
    build_source_only(SOURCE_ONLY, directory)
    _say(f"downloading wheels for Python {python} on {platform}")
    wanted = [whole, f"{agent}[{AGENT_EXTRAS}]"]
    for each in wanted:
        download_wheels([each], python, platforms, directory, find_links=directory)
    _move_agents_copy(directory, agent)
    _say("checking that pip needs nothing else")
    _check(wanted, python, platforms, directory)
    return _install_lines(directory, Path(whole).name, agent.name)


def _build(directory: Path) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run([*command, f"--wheel-dir={directory}", str(ROOT)], check=False)
    if done.returncode:
        raise PacelineError("Paceline's own wheel could not be built")
    (wheel,) = directory.glob("paceline-*.whl")
    return wheel


def _move_agents_copy(directory: Path, agent: Path) -> None:
    """pip download also copies the wheel that it was given."""
    (directory / agent.name).unlink(missing_ok=True)


def _check(wanted: list[str], python: str, platforms: list[str], directory: Path) -> None:
    for each in wanted:
        with tempfile.TemporaryDirectory() as scratch:
            download_wheels([each], python, platforms, Path(scratch), find_links=directory, index=False)


def _install_lines(directory: Path, whole: str, agent: str) -> str:
    files = list(directory.rglob("*.whl"))
    size = sum(file.stat().st_size for file in files) / 1e6
    text = (
        f"# {len(files)} wheels, {size:,.0f} MB. In this directory, on the other machine, one of:\n"
        f"pip install --no-index --find-links . './{whole}'\n"
        f"pip install --no-index --find-links . './agent/{agent}[{AGENT_EXTRAS}]'  # only what runs in a job\n"
    )
    (directory / "install.txt").write_text(text)
    return f"{directory}:\n{text}"


def _say(text: str) -> None:
    print(f"bundle: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
