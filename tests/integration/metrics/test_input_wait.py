"""How long a rank waited for input, whatever its format recorded."""

from __future__ import annotations

import duckdb
import pytest

from paceline.core.schema import INPUT_WAIT


@pytest.mark.parametrize(
    ("data_wait", "preparing", "free", "waited"),
    [
        (3, 9, 9, 3),  # recorded
        (None, 9, 20, 9),  # idle all the while
        (None, 170, 14, 14),  # the host ran ahead: the card was idle for that long at most
        (None, 9, None, 9),
        (None, None, 20, None),  # idle, who knows why
    ],
)
def test_waiting_for_input(data_wait: int | None, preparing: int | None, free: int | None, waited: int | None) -> None:
    columns = "SELECT ?::BIGINT AS data_wait, ?::BIGINT AS preparing, ?::BIGINT AS free"
    found = duckdb.execute(f"SELECT {INPUT_WAIT} FROM ({columns})", [data_wait, preparing, free]).fetchone()
    assert found == (waited,)
