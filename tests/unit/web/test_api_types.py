"""The types of the UI are those of the API."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("write_api_types", ROOT / "scripts" / "write_api_types.py")
    assert spec and spec.loader
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_the_generated_types_are_current(script: ModuleType) -> None:
    assert script.TARGET.read_text(encoding="utf-8") == script.types(), "run make ui-types"


def test_no_answer_has_a_field_of_any_type(script: ModuleType) -> None:
    assert [line for line in script.types().splitlines() if re.search(r": .*\b(unknown|any)\b.*;$", line)] == []


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "integer"}, "number"),
        ({"$ref": "#/components/schemas/Finding"}, "Finding"),
        ({"enum": ["a", "b"]}, '"a" | "b"'),
        ({"const": "a"}, '"a"'),
        ({"anyOf": [{"type": "integer"}, {"type": "number"}, {"type": "null"}]}, "number | null"),
        ({"type": "array", "items": {"type": "string"}}, "string[]"),
        ({"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, "(string | null)[]"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "Record<string, number>"),
    ],
)
def test_schemas_become_typescript(script: ModuleType, schema: dict[str, object], expected: str) -> None:
    assert script._type(schema) == expected
