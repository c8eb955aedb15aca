"""Plug-ins from entry points: ours, other distributions', clashes, broken ones and a missing installation."""

from __future__ import annotations

import logging
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paceline.core import plugins as module
from paceline.core.errors import PacelineError, UsageError
from paceline.core.plugins import load_plugin, our_plugins, plugins

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """A function that puts the metadata of a fake distribution first on sys.path; nothing is cached before and after."""
    monkeypatch.syspath_prepend(str(tmp_path))
    clear_caches()

    def add(distribution: str, **entry_points: str) -> None:
        folder = tmp_path / f"{distribution}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        lines = [f"{name} = {value}" for name, value in entry_points.items()]
        (folder / "entry_points.txt").write_text("\n".join(["[paceline.toys]", *lines, ""]))

    yield add
    clear_caches()


def clear_caches() -> None:
    module._registered.cache_clear()


def test_plugins_of_ours_and_of_others_are_found(install: Install) -> None:
    install("paceline", ball="json:loads")
    install("toybox", kite="json:dumps")
    assert {name: point.value for name, point in plugins("paceline.toys").items()} == {
        "ball": "json:loads",
        "kite": "json:dumps",
    }
    assert load_plugin("paceline.toys", "kite") is sys.modules["json"].dumps


def test_on_a_name_clash_ours_win_and_the_log_names_both(install: Install, caplog: pytest.LogCaptureFixture) -> None:
    install("paceline", ball="json:loads")
    install("a_toybox", ball="json:dumps")
    with caplog.at_level(logging.WARNING):
        assert plugins("paceline.toys")["ball"].value == "json:loads"
    assert "using json:loads of paceline, ignoring json:dumps of a_toybox" in caplog.text


def test_an_unknown_name_lists_the_known_ones(install: Install) -> None:
    install("paceline", ball="json:loads")
    with pytest.raises(UsageError, match="no plug-in 'kite'") as raised:
        load_plugin("paceline.toys", "kite")
    assert raised.value.hint == "known: ball"


def test_a_broken_plugin_is_named_with_its_distribution(install: Install) -> None:
    install("paceline", ball="json:loads")
    install("toybox", kite="no_such_module:Kite")
    with pytest.raises(PacelineError, match=r"'kite' \(no_such_module:Kite.*of toybox.*No module named"):
        load_plugin("paceline.toys", "kite")


def test_an_outdated_installation_says_how_to_install_again(install: Install) -> None:
    install("paceline", ball="json:loads")
    with pytest.raises(PacelineError, match=r"no entry points of group 'paceline.other': pip install -e \."):
        our_plugins("paceline.other")


def test_a_missing_installation_is_one_sentence(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [path for path in sys.path if "site-packages" not in path and "src" not in path])
    with pytest.raises(PacelineError, match=r"^paceline is not installed: pip install -e \.$"):
        plugins("paceline.toys")


def test_the_first_installation_on_the_path_wins_and_extras_and_comments_are_ignored(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("paceline", ball="json:loads [extra]")
    later = tmp_path / "later" / "paceline-0.1.dist-info"
    later.mkdir(parents=True)
    (later / "entry_points.txt").write_text("# old\n[paceline.toys]\nball = json:dumps\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(later.parent)])
    clear_caches()
    assert plugins("paceline.toys")["ball"].value == "json:loads"


def test_plugins_in_a_zip_file_are_found(install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install("paceline", ball="json:loads")
    with zipfile.ZipFile(tmp_path / "kites.zip", "w") as archive:
        archive.writestr("kites-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: kites\nVersion: 1.0\n")
        archive.writestr("kites-1.0.dist-info/entry_points.txt", "[paceline.toys]\nkite = json:dumps\n")
    monkeypatch.syspath_prepend(str(tmp_path / "kites.zip"))
    clear_caches()
    assert set(plugins("paceline.toys")) == {"ball", "kite"}
