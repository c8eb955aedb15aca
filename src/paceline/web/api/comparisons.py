"""Two runs side by side: what became of step and findings, and tables of all that changed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Annotated, Any, Literal

import duckdb
from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from paceline.advice.present import title
from paceline.analysis.compare import Change
from paceline.errors import UsageError
from paceline.web.api.runs import LanguageQuery
from paceline.web.api.tables import CSV, Limit, Offset, Sort, TableRows, Text, csv_file, page_of
from paceline.web.compared import COMPARISONS, ComparedRuns
from paceline.web.opened import OpenRun
from paceline.web.paging import Filters, Page, PagedTable, csv_lines, read_page
from paceline.web.service import PROBLEMS, Service, ServiceNow, json_bytes

router = APIRouter(tags=["compare"])

RunQuery = Annotated[str, Query(max_length=64, description="Id of a run, from /api/v1/runs.")]
PartName = Enum("PartName", {name: name for name in COMPARISONS}, type=str)  # type: ignore[misc]
Verdict = Annotated[
    Literal["faster", "slower", "same", "more", "less", "changed"] | None,
    Query(description="Only rows with this verdict; changed = any but same."),
]


class Changed(BaseModel):
    """`verdict` is faster, slower or same; more or less where neither is good or bad."""

    name: str
    unit: str
    before: float
    after: float
    noise: float
    verdict: str
    percent: float | None


class Fated(BaseModel):
    """`status` is gone, still, new or unseen (the later run records nothing that could show it)."""

    status: str
    id: str
    title: str
    gain_percent_before: float | None
    gain_percent_after: float | None


class Counted(BaseModel):
    rows: int
    changed: int
    """Rows whose change is larger than noise."""


class Compared(BaseModel):
    same_ranks: bool
    step: Changed
    tables: dict[str, Counted]
    """What /api/v1/compare/tables/{name} holds."""
    findings: list[Fated]
    before: dict[str, Any]
    after: dict[str, Any]


async def both_runs(service: ServiceNow, before: RunQuery, after: RunQuery) -> tuple[OpenRun, OpenRun]:
    """Two runs that can be compared."""
    runs = await asyncio.to_thread(lambda: (service.opened(before), service.opened(after)))
    for run in runs:
        run.report("en")
        if run.diagnosis is None:
            raise UsageError(f"{run.found.name} cannot be compared: {run.undiagnosed}")
    return runs


def the_filters(q: Text = None, verdict: Verdict = None) -> Filters:
    given = {"q": q, "verdict": verdict}
    return {name: value for name, value in given.items() if value}


BothRuns = Annotated[tuple[OpenRun, OpenRun], Depends(both_runs)]
FiltersNow = Annotated[Filters, Depends(the_filters)]


@router.get("/compare", responses=PROBLEMS | {200: {"model": Compared}}, response_class=Response)
async def compare_runs(request: Request, service: ServiceNow, runs: BothRuns, lang: LanguageQuery = "en") -> Response:
    """What became faster or slower beyond noise, and what became of the findings; both runs must be ready."""
    compared = await service.work.do(request, lambda: service.comparisons.of(*runs))
    return json_bytes(_told(compared, lang))


@router.get("/compare/tables/{name}", responses=PROBLEMS | {200: {"model": TableRows}}, response_class=Response)
async def compare_table(
    name: PartName, request: Request, service: ServiceNow, runs: BothRuns, filters: FiltersNow, sort: Sort = None,
    offset: Offset = 0, limit: Limit = 50,
) -> Response:  # fmt: skip
    """One page of what changed, sorted and filtered by the server; at first the largest changes."""
    table = COMPARISONS[name.value]
    order = sort or table.sort
    compared = await service.work.do(request, lambda: service.comparisons.of(*runs))
    asked = _Asked(table, filters, order, offset, limit)
    page = await asked.page(request, service, compared)
    return page_of(table, page, sort=order, offset=offset)


@router.get("/compare/tables/{name}/csv", responses=PROBLEMS | CSV, response_class=Response)
async def compare_csv(
    name: PartName, request: Request, service: ServiceNow, runs: BothRuns, filters: FiltersNow, sort: Sort = None
) -> Response:
    """The whole table as CSV, in the same order and with the same filters."""
    table = COMPARISONS[name.value]
    order = sort or table.sort
    compared = await service.work.do(request, lambda: service.comparisons.of(*runs))
    # A row is read before the answer begins, so that a wrong question is an error and not an empty file.
    await _Asked(table, filters, order, 0, 1).page(request, service, compared)

    def lines() -> Iterator[str]:
        with compared.connection.cursor() as cursor:
            yield from csv_lines(cursor, table, filters, order)

    return csv_file(lines(), f"{runs[0].found.id}-{runs[1].found.id}-{table.name}.csv")


@dataclass(frozen=True)
class _Asked:
    """A page of a table, as it was asked for."""

    table: PagedTable
    filters: Filters
    sort: str
    offset: int
    limit: int

    async def page(self, request: Request, service: Service, compared: ComparedRuns) -> Page:
        with compared.connection.cursor() as cursor:
            return await service.work.do(request, lambda: self._read(cursor), stop=cursor.interrupt)

    def _read(self, cursor: duckdb.DuckDBPyConnection) -> Page:
        return read_page(cursor, self.table, self.filters, sort=self.sort, offset=self.offset, limit=self.limit)


def _told(compared: ComparedRuns, language: str) -> dict[str, Any]:
    return {
        "same_ranks": compared.result.same_ranks,
        "step": _change(compared.result.step),
        "tables": {name: _counted(compared.rows(name)) for name in COMPARISONS},
        "findings": [
            {
                "status": fate.status, "id": fate.finding.id, "title": title(fate.finding, language),
                "gain_percent_before": round(fate.before.gain.percent, 2) if fate.before else None,
                "gain_percent_after": round(fate.after.gain.percent, 2) if fate.after else None,
            }
            for fate in compared.fates
        ],
        "before": _about(compared.before),
        "after": _about(compared.after),
    }  # fmt: skip


def _about(run: OpenRun) -> dict[str, Any]:
    assert run.diagnosis is not None
    return run.diagnosis.run | {"source": run.found.name, "id": run.found.id}


def _counted(rows: tuple[Change, ...]) -> dict[str, int]:
    return {"rows": len(rows), "changed": sum(row.verdict != "same" for row in rows)}


def _change(change: Change) -> dict[str, Any]:
    return asdict(change) | {"percent": change.percent}
