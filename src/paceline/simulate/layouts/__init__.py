"""Every layout the simulator can write, by name."""

from __future__ import annotations

from paceline.simulate.layouts.ascend_db import AscendDb
from paceline.simulate.layouts.ascend_text import AscendText
from paceline.simulate.layouts.kineto import Kineto
from paceline.simulate.layouts.layout import Layout

LAYOUTS: dict[str, type[Layout]] = {
    "ascend-text": AscendText,
    "ascend-db": AscendDb,
    "kineto": Kineto,
}
