"""The published JSON Schemas are current, and what Paceline really writes follows them."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from typer.testing import CliRunner

from paceline.bench.statistics.score import BenchScore
from paceline.cli.main import application
from paceline.cli.schema import DOCUMENTS, schema_of
from paceline.diagnosis.diagnose import diagnose
from paceline.output.report import report_document
from paceline.output.report_data import ReportData, report_data
from paceline.run.run import Run

ROOT = Path(__file__).parents[3]


def validated(content: str | bytes, name: str) -> Any:
    document = json.loads(content)
    jsonschema.Draft202012Validator(schema_of(name)).validate(document)
    assert document["schema"] == f"paceline.{name}/1"
    return document


def command(*words: str) -> str:
    done = CliRunner().invoke(application(), list(words))
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_published_schemas_are_current() -> None:
    spec = importlib.util.spec_from_file_location("write_schemas", ROOT / "scripts" / "write_schemas.py")
    assert spec and spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    on_disk = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "schemas").glob("*.json")}
    assert on_disk == script.schemas(), "run scripts/write_schemas.py"


@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_the_page_lists_every_document(name: str) -> None:
    page = (ROOT / "docs" / "schemas" / name).read_text(encoding="utf-8")
    assert re.findall(r"^\| \[paceline\.([a-z-]+)/1\]\(\1\.json\)", page, re.M) == list(DOCUMENTS)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_schema_is_valid_and_names_its_document(name: str) -> None:
    schema = schema_of(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"]["schema"] == {"enum": [f"paceline.{name}/1"]}
    assert schema["required"] == list(schema["properties"])


def test_the_command_lists_documents_and_prints_one() -> None:
    assert [line.split()[0] for line in command("schema").splitlines()] == list(DOCUMENTS)
    assert json.loads(command("schema", "diagnosis")) == schema_of("diagnosis")
    wrong = CliRunner().invoke(application(), ["schema", "diagnose"])
    assert "no document 'diagnose'" in str(wrong.exception)


def test_diagnosis_and_report_of_a_run_follow_their_schemas(run: Run, report: ReportData) -> None:
    diagnosis = diagnose(run)
    assert diagnosis.findings[0].id == "slow-rank"
    validated(msgspec.json.encode(diagnosis), "diagnosis")
    real = report_document(report_data(run, {"en": diagnosis}, nominal={"RDMA": 25.0}), "en")
    assert validated(msgspec.json.encode(real), "report")["nominal"] == {"RDMA": 25.0}
    # Values that are not a number become null.
    validated(msgspec.json.encode(report_document(report, "zh")), "report")


def test_a_document_that_lost_a_field_or_changed_its_type_does_not_pass(run: Run) -> None:
    written = json.loads(msgspec.json.encode(diagnose(run)))
    del written["run"]["steps"]
    with pytest.raises(jsonschema.ValidationError, match="'steps' is a required property"):
        validated(json.dumps(written), "diagnosis")
    written["run"]["steps"] = ["2"]
    with pytest.raises(jsonschema.ValidationError, match="'2' is not of type 'integer'"):
        validated(json.dumps(written), "diagnosis")


def test_what_commands_print_follows_the_schemas(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path))
    source = str(run.source)
    assert validated(command("what-if", source, "--fix", "rank:5", "--json"), "what-if")["fixes"][0]["fix"] == "rank:5"
    assert validated(command("breakdown", source, "--json"), "breakdown")["slow"][0]["rank"] == 5
    compared = validated(command("compare", source, source, "--json", "-"), "comparison")
    assert compared["step"]["verdict"] == "same" and compared["findings"][0]["status"] == "still"
    validated(command("diagnose", source, "--json", "-", "--mask-hosts"), "diagnosis")


def test_a_score_follows_its_schema() -> None:
    score = BenchScore(1.5, None, (1.5,), (), False, 2, ((0.75, 0.75),))
    validated(msgspec.json.encode(score.document()), "score")
