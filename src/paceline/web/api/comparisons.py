"""Endpoints that compare two runs: step time, findings before and after, and tables of what changed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Literal

import duckdb
import msgspec
from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from paceline.core.i18n import Language
from paceline.diagnosis.finding import RunFacts
from paceline.metrics.compare import Change
from paceline.output.comparison import ChangedFinding, ChangedValue, changed_finding, changed_value
from paceline.web.api.runs import LanguageQuery
from paceline.web.api.tables import CSV, Limit, Offset, Sort, TableRows, Text, csv_file, page_of
from paceline.web.comparison_cache import COMPARISONS, CachedComparison
from paceline.web.openapi import json_document
from paceline.web.paging import Filters, PagedTable, TablePage, csv_lines, read_page
from paceline.web.problems import BadRequestError
from paceline.web.run_cache import CachedRun
from paceline.web.service import PROBLEMS, Service, ServiceDependency, json_bytes

router = APIRouter(tags=["compare"])

RunQuery = Annotated[str, Query(max_length=64, description="Id of a run, from /api/v1/runs.")]
PartName = Enum("PartName", {name: name for name in COMPARISONS}, type=str)  # type: ignore[misc]
Verdict = Annotated[
    Literal["faster", "slower", "same", "more", "less", "changed"] | None,
    Query(description="Only rows with this verdict; changed = any but same."),
]


class ComparedRun(RunFacts, frozen=True, kw_only=True):
    """`source` is the name of the run on the server."""

    id: str


class ChangeCount(msgspec.Struct, frozen=True):
    rows: int
    changed: int
    """Rows whose change is larger than noise."""


class RunComparison(msgspec.Struct, frozen=True, kw_only=True):
    """What became faster or slower beyond noise, and what became of the findings."""

    same_ranks: bool
    step: ChangedValue
    tables: dict[str, ChangeCount]
    """What /api/v1/compare/tables/{name} holds."""
    findings: tuple[ChangedFinding, ...]
    before: ComparedRun
    after: ComparedRun


async def both_runs(service: ServiceDependency, before: RunQuery, after: RunQuery) -> tuple[CachedRun, CachedRun]:
    """Two runs that can be compared."""
    runs = await asyncio.to_thread(lambda: (service.cached_run(before), service.cached_run(after)))
    for run in runs:
        run.report("en")
        if not run.diagnoses:
            raise BadRequestError("not_comparable", name=run.found.name, reason=run.undiagnosed)
    return runs


def parse_filters(q: Text = None, verdict: Verdict = None) -> Filters:
    given = {"q": q, "verdict": verdict}
    return {name: value for name, value in given.items() if value}


BothRuns = Annotated[tuple[CachedRun, CachedRun], Depends(both_runs)]
FiltersDependency = Annotated[Filters, Depends(parse_filters)]


@router.get("/compare", responses=PROBLEMS | json_document(RunComparison), response_class=Response)
async def compare_runs(
    request: Request, service: ServiceDependency, runs: BothRuns, lang: LanguageQuery = "en"
) -> Response:
    """What became faster or slower beyond noise, and findings before and after; both runs must be ready."""
    compared = await service.limiter.run(request, lambda: service.comparisons.get(*runs))
    return json_bytes(_comparison(compared, lang))


@router.get("/compare/tables/{name}", responses=PROBLEMS | json_document(TableRows), response_class=Response)
async def compare_table(
    name: PartName,
    request: Request,
    service: ServiceDependency,
    runs: BothRuns,
    filters: FiltersDependency,
    sort: Sort = None,
    offset: Offset = 0,
    limit: Limit = 50,
) -> Response:
    """One page of what changed, sorted and filtered by the server; the largest changes first by default."""
    table = COMPARISONS[name.value]
    order = sort or table.sort
    compared = await service.limiter.run(request, lambda: service.comparisons.get(*runs))
    wanted = _PageRequest(table, filters, order, offset, limit)
    page = await wanted.page(request, service, compared)
    return page_of(table, page, sort=order, offset=offset)


@router.get("/compare/tables/{name}/csv", responses=PROBLEMS | CSV, response_class=Response)
async def compare_csv(
    name: PartName,
    request: Request,
    service: ServiceDependency,
    runs: BothRuns,
    filters: FiltersDependency,
    sort: Sort = None,
) -> Response:
    """The whole table as CSV, in the same order and with the same filters."""
    table = COMPARISONS[name.value]
    order = sort or table.sort
    compared = await service.limiter.run(request, lambda: service.comparisons.get(*runs))
    # A row is read before the response begins, so that a bad request is an error and not an empty file.
    await _PageRequest(table, filters, order, 0, 1).page(request, service, compared)

    def lines() -> Iterator[str]:
        with compared.connection.cursor() as cursor:
            yield from csv_lines(cursor, table, filters, order)

    return csv_file(lines(), f"{runs[0].found.id}-{runs[1].found.id}-{table.name}.csv")


@dataclass(frozen=True)
class _PageRequest:
    """The page of a table that a client requested."""

    table: PagedTable
    filters: Filters
    sort: str
    offset: int
    limit: int

    async def page(self, request: Request, service: Service, compared: CachedComparison) -> TablePage:
        with compared.connection.cursor() as cursor:
            return await service.limiter.run(request, lambda: self._read(cursor), stop=cursor.interrupt)

    def _read(self, cursor: duckdb.DuckDBPyConnection) -> TablePage:
        return read_page(cursor, self.table, self.filters, sort=self.sort, offset=self.offset, limit=self.limit)


def _comparison(compared: CachedComparison, language: Language) -> RunComparison:
    return RunComparison(
        same_ranks=compared.result.same_ranks,
        step=changed_value(compared.result.step),
        tables={name: _counted(compared.rows(name)) for name in COMPARISONS},
        findings=tuple(map(changed_finding, compared.findings(language))),
        before=_compared_run(compared.before, language),
        after=_compared_run(compared.after, language),
    )


def _compared_run(run: CachedRun, language: Language) -> ComparedRun:
    facts = msgspec.structs.asdict(run.diagnoses[language].run)
    return ComparedRun(**(facts | {"source": run.found.name, "id": run.found.id}))


def _counted(rows: tuple[Change, ...]) -> ChangeCount:
    return ChangeCount(len(rows), sum(row.verdict != "same" for row in rows))
