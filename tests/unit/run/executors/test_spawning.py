"""The main module is as it was when a worker has been started."""

from __future__ import annotations

import sys

import pytest

from paceline.run.executors.spawning import hidden_main


@pytest.mark.parametrize("known", [{}, {"__file__": "train.py"}])
def test_the_main_module_is_as_it_was(known: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of `python -c` it has no file: one that is None ends imports of setuptools with an error."""
    main = vars(sys.modules["__main__"])
    monkeypatch.delitem(main, "__file__", raising=False)
    for name, value in known.items():
        monkeypatch.setitem(main, name, value)
    before = dict(main)
    with hidden_main():
        assert main.get("__file__") is None and main.get("__spec__") is None
    assert main == before
