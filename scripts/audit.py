"""Licences of everything that is installed, known vulnerabilities where pip-audit is installed, an SBOM, and a lock file.

    python scripts/audit.py [--sbom FILE] [--lock FILE]        (`make audit`; `make lock` writes constraints-dev.txt)

Exits with 1 on a licence that is neither permissive nor known to be acceptable, or on a known vulnerability.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.message import Message
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

PERMISSIVE = re.compile(
    r"\b(MIT|MIT-0|BSD|BSD-[0-4]-Clause|0BSD|Apache|ISC|PSF|Python Software Foundation|PSF-2\.0|Zlib|Unlicense|"
    r"CC0|HPND|MPL|Mozilla Public License|BSL-1\.0|Python-2\.0|CNRI-Python)\b",
    re.IGNORECASE,
)
ACCEPTED = {
    "asyncssh": "EPL-2.0: optional, imported unchanged and only for ssh:// sources",
}
"""Packages with another licence, and why they may be used."""
PROPRIETARY = re.compile(r"^(nvidia-|cuda-)")
"""Libraries that a framework brings; not ours to pass on, so never part of a release."""


@dataclass(frozen=True)
class Package:
    name: str
    version: str
    licence: str

    @property
    def is_ours(self) -> bool:
        return self.name == "paceline"

    @property
    def problem(self) -> str | None:
        if self.is_ours or self.name in ACCEPTED or PROPRIETARY.match(self.name) or PERMISSIVE.search(self.licence):
            return None
        return f"{self.name} {self.version}: licence {self.licence or 'not stated'}"


def installed() -> list[Package]:
    found = {_name(each): Package(_name(each), each.version, _licence(each.metadata)) for each in distributions()}
    return [found[name] for name in sorted(found)]


def _name(distribution: Distribution) -> str:
    return re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower()


def _licence(metadata: Message) -> str:
    """The SPDX expression, else the classifiers, else the first line of the licence field."""
    if expression := metadata.get("License-Expression"):
        return str(expression)
    classified = [
        str(each).rpartition(" :: ")[2] for each in metadata.get_all("Classifier", []) if "License ::" in each
    ]
    stated = str(metadata.get("License") or "").strip().partition("\n")[0][:80]
    return ", ".join(classified) or stated


def sbom(packages: list[Package]) -> dict[str, object]:
    """CycloneDX 1.5; no time and no serial number: the same packages give the same file."""
    ours = next((each.version for each in packages if each.is_ours), "0")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "paceline", "version": ours}},
        "components": [
            {
                "type": "library",
                "name": each.name,
                "version": each.version,
                "purl": f"pkg:pypi/{each.name}@{each.version}",
                **({"licenses": [{"license": {"name": each.licence}}]} if each.licence else {}),
            }
            for each in packages
            if not each.is_ours
        ],
    }


def lock(packages: list[Package]) -> Iterator[str]:
    """Constraints for pip; builds for one kind of machine ("+cpu") are not pinned."""
    for each in packages:
        if not each.is_ours and each.name not in ("pip", "setuptools") and "+" not in each.version:
            yield f"{each.name}=={each.version}\n"


def vulnerabilities() -> int:
    tool = shutil.which("pip-audit", path=str(Path(sys.executable).parent))
    if tool is None:
        print("vulnerabilities: not checked: pip-audit is not installed in this environment")
        return 0
    command = [tool, "--skip-editable", "--progress-spinner", "off", "--format", "json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    try:
        found = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        print(f"vulnerabilities: not checked: {(done.stderr.strip().splitlines() or ['pip-audit said nothing'])[-1]}")
        return 0
    print(*audited(found), sep="\n")
    return sum(bool(each.get("vulns")) for each in found)


def audited(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What pip-audit found, in lines; it calls packages that an index without such data does not know "skipped", and succeeds.

    >>> list(audited([{"name": "a", "skip_reason": "not found on PyPI"}]))
    ['vulnerabilities: not checked: the package index has no data of 1 package, such as a']
    """
    skipped = [each["name"] for each in found if "skip_reason" in each]
    for each in found:
        for known in each.get("vulns", ()):
            fixed = ", ".join(known["fix_versions"]) or "no version"
            yield f"  {each['name']} {each['version']}: {known['id']}, fixed in {fixed}"
    packages = f"{len(skipped)} package{'s' * (len(skipped) != 1)}"
    without = f"the package index has no data of {packages}, such as {', '.join(skipped[:3])}"
    if len(skipped) == len(found):
        yield f"vulnerabilities: not checked: {without}" if found else "vulnerabilities: not checked: no packages"
    else:
        known = sum(bool(each.get("vulns")) for each in found)
        yield f"vulnerabilities: {known} of {len(found) - len(skipped)} packages" + (f"; {without}" if skipped else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sbom", type=Path)
    parser.add_argument("--lock", type=Path)
    options = parser.parse_args()
    packages = installed()
    if options.lock:
        options.lock.write_text("".join(lock(packages)))
        print(f"{options.lock}: written")
        return 0
    if options.sbom:
        options.sbom.parent.mkdir(parents=True, exist_ok=True)
        options.sbom.write_text(json.dumps(sbom(packages), indent=1) + "\n")
        print(f"{options.sbom}: {len(packages)} packages")
    for each in packages:
        print(f"  {each.name:32} {each.version:16} {each.licence[:60]}")
    problems = [problem for each in packages if (problem := each.problem)]
    print("\n".join(problems) or f"licences: {len(packages)} packages, none to look at")
    return int(bool(problems)) | int(bool(vulnerabilities()))


if __name__ == "__main__":
    sys.exit(main())
