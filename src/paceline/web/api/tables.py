"""Endpoints of tables: one page of rows as JSON, or the whole table as CSV."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from paceline.core.errors import UsageError
from paceline.core.rank_list import ranks_of
from paceline.web.openapi import json_document
from paceline.web.paging import MOST_ROWS, Column, Filters, PagedTable, TablePage, csv_lines, read_page
from paceline.web.problems import BadRequestError
from paceline.web.service import PROBLEMS, Answer, RunDependency, RunId, json_bytes, query_run
from paceline.web.tables import TABLES

router = APIRouter(tags=["tables"])

TableName = Enum("TableName", {name: name for name in TABLES}, type=str)  # type: ignore[misc]

_MOST = 2**53


Cell = str | int | float | bool | None


class TableRows(msgspec.Struct, frozen=True):
    """One page of a table: rows in the order of columns; times ms, sizes bytes, rates GB/s, unknown null."""

    table: str
    columns: tuple[Column, ...]
    sort: str
    offset: int
    total: int
    rows: list[tuple[Cell, ...]]


class TableInfo(Answer):
    name: str
    about: str
    columns: list[Column]
    filters: list[str]
    needs: list[str]
    sort: str


Number = Annotated[int | None, Query(ge=-1, le=_MOST)]
Text = Annotated[str | None, Query(max_length=300)]
Ranks = Annotated[str | None, Query(max_length=300, description="Ranks, like 0-7, 12.")]


def parse_filters(
    step: Number = None,
    rank: Ranks = None,
    stage: Number = None,
    src: Ranks = None,
    dst: Ranks = None,
    sequence: Number = None,
    host: Text = None,
    group: Text = None,
    transport: Text = None,
    op: Text = None,
    level: Text = None,
    per: Literal["step", "total"] | None = None,
    scope: Literal["global", "group"] | None = None,
    q: Text = None,
) -> Filters:
    """The filters that were given in the query."""
    given: dict[str, int | str | list[int] | None] = {
        "step": step,
        "rank": parse_ranks(rank),
        "stage": stage,
        "src": parse_ranks(src),
        "dst": parse_ranks(dst),
        "sequence": sequence,
        "host": host,
        "group": group,
        "transport": transport,
        "op": op,
        "level": level,
        "per": per,
        "scope": scope,
        "q": q,
    }
    return {name: value for name, value in given.items() if value is not None and value != ""}


def parse_ranks(text: str | None) -> list[int] | None:
    """Ranks of a filter; BadRequestError says what it cannot understand."""
    if not text or not text.strip():
        return None
    try:
        return ranks_of(text)
    except UsageError as error:
        raise BadRequestError("bad_ranks", text=text) from error


FiltersDependency = Annotated[Filters, Depends(parse_filters)]
Sort = Annotated[str | None, Query(max_length=64, description='A column; "-" before it sorts downwards.')]
Offset = Annotated[int, Query(ge=0, le=_MOST)]
Limit = Annotated[int, Query(ge=1, le=MOST_ROWS)]
CSV: dict[int | str, dict[str, Any]] = {200: {"content": {"text/csv": {"schema": {"type": "string"}}}}}


@router.get("/tables")
def list_tables() -> list[TableInfo]:
    """Every table there is, with its columns and filters."""
    return [
        TableInfo(
            name=table.name,
            about=table.about,
            filters=list(table.filters),
            needs=list(table.needs),
            sort=table.sort,
            columns=list(table.columns),
        )
        for table in TABLES.values()
    ]


@router.get("/runs/{run_id}/tables/{name}", responses=PROBLEMS | json_document(TableRows), response_class=Response)
async def get_table(
    name: TableName,
    request: Request,
    run: RunDependency,
    filters: FiltersDependency,
    sort: Sort = None,
    offset: Offset = 0,
    limit: Limit = 50,
) -> Response:
    """One page of a table, sorted and filtered by the server."""
    table = TABLES[name.value]
    order = sort or table.sort
    page = await query_run(
        request,
        run,
        lambda snapshot: read_page(snapshot.cursor, table, filters, sort=order, offset=offset, limit=limit),
    )
    return page_of(table, page, sort=order, offset=offset)


@router.get(
    "/runs/{run_id}/tables/{name}/csv",
    responses=PROBLEMS | CSV,
    response_class=Response,
)
async def get_csv(
    run_id: RunId, name: TableName, request: Request, run: RunDependency, filters: FiltersDependency, sort: Sort = None
) -> Response:
    """The whole table as CSV, in the same order and with the same filters."""
    table = TABLES[name.value]
    order = sort or table.sort
    # A row is read before the response begins, so that a bad request is an error and not an empty file.
    await query_run(request, run, lambda one: read_page(one.cursor, table, filters, sort=order, offset=0, limit=1))

    def lines() -> Iterator[str]:
        with run.snapshot() as snapshot:
            yield from csv_lines(snapshot.cursor, table, filters, order)

    return csv_file(lines(), f"{run_id}-{table.name}.csv")


def csv_file(lines: Iterator[str], name: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(lines, media_type="text/csv; charset=utf-8", headers=headers)


def page_of(table: PagedTable, page: TablePage, *, sort: str, offset: int) -> Response:
    return json_bytes(TableRows(table.name, table.columns, sort, offset, page.total, page.rows))
