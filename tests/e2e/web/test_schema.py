"""Whatever is sent within and beyond the OpenAPI document, the answer is one the document knows."""

from __future__ import annotations

from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from paceline.web.app import create_app
from paceline.web.security import rules_for
from support.web.servers import Server

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
DOCUMENT = create_app(Path(), rules_for("127.0.0.1", token=None)).openapi()
OPERATIONS = [(path, method) for path, operations in DOCUMENT["paths"].items() for method in operations]


@pytest.fixture(scope="module")
def schema(server: Server) -> schemathesis.BaseSchema:
    """The document, with ids narrowed to a run that is ready and one that is not there."""
    run = server.timeline("llama-16")
    document = server.get("/openapi.json")
    for operations in document["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", []):
                if parameter["name"] in ("run_id", "before", "after"):
                    parameter["schema"] = {"type": "string", "enum": [run, "nothing-000000"]}
    return schemathesis.openapi.from_dict(document)


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_every_answer_is_in_the_document(
    schema: schemathesis.BaseSchema, server: Server, path: str, method: str
) -> None:
    @given(case=schema[path][method.upper()].as_strategy())
    @settings(max_examples=10, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    def answers(case: schemathesis.Case) -> None:
        case.call_and_validate(base_url=server.url, checks=CHECKS)

    answers()


def test_the_document_describes_every_endpoint() -> None:
    for path, operations in DOCUMENT["paths"].items():
        assert path.startswith("/api/v1/")
        for operation in operations.values():
            assert operation["description"], path
