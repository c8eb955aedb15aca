"""JSON Schema of public documents, made from the structs that are written and the texts below their fields."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator
from textwrap import dedent
from typing import Any

import msgspec

JsonSchema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def document_schema(document: type[msgspec.Struct]) -> JsonSchema:
    """The schema of one document, complete in itself."""
    components = schema_components([document], "#/$defs/{name}")
    root = components.pop(document.__name__)
    return {"$schema": DIALECT, **root, "$defs": components}


def schema_components(documents: Iterable[type[msgspec.Struct]], ref_template: str) -> dict[str, JsonSchema]:
    """Schemas of these structs and all they are made of, by name, sorted.

    They describe what is written: every field is there, also one that has a default when it is read.
    """
    documents = tuple(documents)
    _, components = msgspec.json.schema_components(documents, ref_template=ref_template)
    texts = {struct.__name__: _field_texts(struct) for struct in _structs(documents)}
    return {name: _as_written(schema, texts.get(name, {})) for name, schema in sorted(components.items())}


def _as_written(schema: JsonSchema, texts: dict[str, str]) -> JsonSchema:
    properties = schema.get("properties")
    if not properties:
        return schema
    described = {name: _described(field, texts.get(name)) for name, field in properties.items()}
    return schema | {"properties": described, "required": list(described)}


def _described(field: JsonSchema, text: str | None) -> JsonSchema:
    kept = {key: value for key, value in field.items() if key != "default"}
    return {**kept, "description": text} if text else kept


def _structs(documents: Iterable[type[msgspec.Struct]]) -> set[type[msgspec.Struct]]:
    found: set[type] = set()
    waiting: list[object] = list(msgspec.inspect.multi_type_info(documents))
    while waiting:
        info = waiting.pop()
        if isinstance(info, (msgspec.inspect.StructType, msgspec.inspect.DataclassType)):
            if info.cls in found:
                continue
            found.add(info.cls)
        waiting += _parts(info)
    return {each for each in found if issubclass(each, msgspec.Struct)}


def _parts(info: object) -> Iterator[object]:
    """Type descriptions inside a type description."""
    for name in getattr(info, "__struct_fields__", ()):
        value = getattr(info, name)
        yield from value if isinstance(value, tuple) else (value,)


def _field_texts(struct: type[msgspec.Struct]) -> dict[str, str]:
    """The text that stands below a field in the source of a struct or of those it extends."""
    texts: dict[str, str] = {}
    for each in reversed(struct.__mro__):
        if issubclass(each, msgspec.Struct) and each is not msgspec.Struct:
            (made,) = ast.parse(dedent(inspect.getsource(each))).body
            assert isinstance(made, ast.ClassDef)
            for field, below in zip(made.body, made.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and _is_text(below):
                    texts[field.target.id] = inspect.cleandoc(below.value.value)  # type: ignore[attr-defined]
    return texts


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
