"""Exported tables: warnings are kept with their values, so that a reader of any language gets them."""

from __future__ import annotations

import json
from pathlib import Path

from paceline import simulate
from paceline.core.message import message_in
from paceline.output.table_files import export_tables
from paceline.run.run import Run


def test_warnings_of_exported_tables_are_read_again_in_both_languages(tmp_path: Path) -> None:
    simulate.simulate(
        tmp_path / "run", simulate.ClusterSpec(hosts=1, devices=4, dp=4, tp=1, pp=1, steps=2), [], "ascend-text"
    )
    [kernels, *_] = sorted((tmp_path / "run").rglob("kernel_details.csv"))
    kernels.write_bytes(b"")
    with Run(tmp_path / "run", store=tmp_path / "store") as run:
        export_tables(run, tmp_path / "exported", "parquet")
        said = {each.sentence for each in run.file_warnings}
    index = json.loads((tmp_path / "exported" / "paceline.json").read_text(encoding="utf-8"))
    assert {"message": "is empty", "said": {"key": "empty", "values": {}}}.items() <= index["warnings"][0].items()
    for source, store in (("exported", "second"), ("run", "store")):
        with Run(tmp_path / source, store=tmp_path / store) as again:
            again.load(["kernels"])
            assert {each.sentence for each in again.file_warnings} >= said
            assert any(message_in("zh", each.sentence).endswith("：文件为空") for each in again.warnings)
