"""`paceline schema`: JSON Schema of the documents that Paceline writes."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Optional

import msgspec
import typer
from typing_extensions import Annotated

from paceline.core.errors import UsageError
from paceline.output.json_schema import JsonSchema, document_schema

DOCUMENTS = {
    "diagnosis": ("paceline.diagnosis.finding", "Diagnosis", "paceline diagnose --json, diagnosis.json"),
    "report": ("paceline.output.report", "Report", "data inside report.html"),
    "comparison": ("paceline.output.comparison", "ComparisonDocument", "paceline compare --json"),
    "what-if": ("paceline.diagnosis.what_if", "WhatIf", "paceline what-if --json"),
    "tables": ("paceline.output.table_files", "TableIndex", "paceline.json of paceline export --to parquet"),
    "breakdown": ("paceline.output.breakdown", "BreakdownDocument", "paceline breakdown --json"),
    "watch": ("paceline.watch.render", "WatchDocument", "one line of paceline watch --json"),
    "bench": ("paceline.bench.result", "BenchResult", "paceline bench run --json"),
    "score": ("paceline.bench.statistics.score", "ScoreDocument", "paceline bench score --json"),
    "doctor": ("paceline.jobs.doctor", "DoctorReport", "paceline doctor --json"),
    "job-outcome": ("paceline.jobs.backend", "JobOutcome", "paceline job run --json"),
}
"""Name → module, struct, where it is written; a module is imported when its document is asked for."""


def schema(
    document: Annotated[Optional[str], typer.Argument(metavar="[DOCUMENT]", help="A document, e.g. diagnosis.")] = None,
) -> None:
    """Print the JSON Schema of a document that Paceline writes, or list the documents.

    Example:  paceline schema diagnosis
    """
    if document is None:
        width = max(map(len, DOCUMENTS))
        for name, (_, _, written) in DOCUMENTS.items():
            typer.echo(f"{name:{width}}  {written}")
        return
    typer.echo(json.dumps(schema_of(document), indent=2, ensure_ascii=False))


def schema_of(document: str) -> JsonSchema:
    """The JSON Schema of a document by its name."""
    if document not in DOCUMENTS:
        raise UsageError(f"no document {document!r}", hint=f"known: {', '.join(DOCUMENTS)}")
    module, name, _ = DOCUMENTS[document]
    struct: type[msgspec.Struct] = getattr(import_module(module), name)
    return document_schema(struct)
