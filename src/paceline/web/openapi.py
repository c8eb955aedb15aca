"""OpenAPI: schemas of documents that msgspec writes, beside those that FastAPI makes of its own models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from paceline.output.json_schema import JsonSchema, schema_components

_REF = "#/components/schemas/{name}"


def json_document(document: type[msgspec.Struct]) -> dict[int | str, dict[str, Any]]:
    """The entry of `responses` for an endpoint that answers with this struct; `describe_documents` must name it too."""
    schema = {"$ref": _REF.format(name=document.__name__)}
    description = (document.__doc__ or document.__name__).strip().splitlines()[0]
    return {200: {"content": {"application/json": {"schema": schema}}, "description": description}}


def describe_documents(app: FastAPI, documents: Sequence[type[msgspec.Struct]]) -> None:
    """Make the application's OpenAPI document define what `json_document` refers to."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            models = made.setdefault("components", {}).setdefault("schemas", {})
            written = schema_components(documents, _REF)
            _check_names(models, written)
            made["components"]["schemas"] = dict(sorted((models | written).items()))
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _check_names(models: dict[str, JsonSchema], written: dict[str, JsonSchema]) -> None:
    """A class may be part of both kinds of answers; two classes must not share a name."""
    for name in models.keys() & written.keys():
        same = models[name].get("properties", {}).keys() == written[name].get("properties", {}).keys()
        assert same, f"two schemas with the name {name}"
