"""The audit: licences that need a look, a reproducible SBOM, a lock file that names no machine."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    path = Path(__file__).parents[3] / "scripts" / "audit.py"
    spec = importlib.util.spec_from_file_location("paceline_audit", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "licence", "is_fine"),
    [
        ("a", "MIT", True),
        ("a", "Apache Software License", True),
        ("a", "BSD-3-Clause AND ISC", True),
        ("a", "GPL-3.0-or-later", False),
        ("a", "Limited", False),  # holds "MIT" in no word of its own
        ("a", "", False),
        ("asyncssh", "EPL-2.0 OR GPL-2.0-or-later", True),
        ("nvidia-cublas", "Proprietary", True),
        ("paceline", "", True),
    ],
)
def test_licences_that_need_a_look(audit: ModuleType, name: str, licence: str, is_fine: bool) -> None:
    assert (audit.Package(name, "1", licence).problem is None) is is_fine


def test_what_is_installed_is_listed_once_with_a_licence(audit: ModuleType) -> None:
    packages = audit.installed()
    names = [each.name for each in packages]
    assert "duckdb" in names and len(set(names)) == len(names)
    assert [each.problem for each in packages if each.name in ("duckdb", "numpy", "msgspec")] == [None] * 3


def test_the_sbom_and_the_lock_file_are_reproducible_and_leave_us_out(audit: ModuleType) -> None:
    packages = [
        audit.Package("numpy", "2.1", "BSD"),
        audit.Package("paceline", "1.0", ""),
        audit.Package("x", "1+cpu", ""),
    ]
    bill = audit.sbom(packages)
    assert [each["purl"] for each in bill["components"]] == ["pkg:pypi/numpy@2.1", "pkg:pypi/x@1+cpu"]
    assert json.dumps(bill) == json.dumps(audit.sbom(packages))
    assert list(audit.lock(packages)) == ["numpy==2.1\n"]


def test_packages_that_the_index_does_not_know_are_not_called_safe(audit: ModuleType) -> None:
    """pip-audit skips them and ends with 0."""
    skipped = [{"name": name, "skip_reason": "not found"} for name in "ab"]
    assert list(audit.audited(skipped)) == [
        "vulnerabilities: not checked: the package index has no data of 2 packages, such as a, b"
    ]
    bad = {"name": "c", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]}
    good = {"name": "d", "version": "1", "vulns": []}
    assert list(audit.audited([bad, good])) == ["  c 1: CVE-1, fixed in 2", "vulnerabilities: 1 of 2 packages"]
