"""Layouts (on-disk formats) that the simulator can write, by name."""

from __future__ import annotations

from paceline.simulate.layouts.ascend_db import AscendDb
from paceline.simulate.layouts.ascend_text import AscendText
from paceline.simulate.layouts.ascend_text_ms import AscendTextMs
from paceline.simulate.layouts.kineto import Kineto
from paceline.simulate.layouts.layout import LayoutWriter
from paceline.simulate.layouts.mindinsight import MindInsight, MindInsightR13, MindInsightR21
from paceline.simulate.layouts.msadvisor import MsAdvisor
from paceline.simulate.layouts.msprof import Msprof

LAYOUTS: dict[str, type[LayoutWriter]] = {
    "ascend-text": AscendText,
    "ascend-text-ms": AscendTextMs,
    "ascend-db": AscendDb,
    "mindinsight": MindInsight,
    "mindinsight-r13": MindInsightR13,
    "mindinsight-r21": MindInsightR21,
    "msadvisor": MsAdvisor,
    "msprof": Msprof,
    "kineto": Kineto,
}
