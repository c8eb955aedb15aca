"""zip_strict is zip(strict=True), also in its form for Python before 3.10."""

from __future__ import annotations

import pytest

from paceline.core.zip_strict import _checked, zip_strict


@pytest.mark.parametrize("zipped", [zip_strict, lambda *columns: _checked(columns)])
def test_rows_of_equal_columns_and_an_error_for_others(zipped: type[zip]) -> None:
    assert list(zipped([1, 2], "ab")) == [(1, "a"), (2, "b")]
    assert list(zipped([], [])) == []
    with pytest.raises(ValueError):
        list(zipped([1, 2], [1]))
    with pytest.raises(ValueError):
        list(zipped([1], iter([1, 2])))
