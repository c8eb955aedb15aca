"""Write docs/schemas from the structs of the documents that Paceline writes; a test keeps the two equal."""

from __future__ import annotations

import json
from pathlib import Path

from paceline.cli.schema import DOCUMENTS, schema_of

TARGET = Path(__file__).parents[1] / "docs" / "schemas"


def schemas() -> dict[str, str]:
    """File name → content of everything in docs/schemas."""
    return {f"{name}.json": json.dumps(schema_of(name), indent=2, ensure_ascii=False) + "\n" for name in DOCUMENTS}


if __name__ == "__main__":
    TARGET.mkdir(parents=True, exist_ok=True)
    for name, content in schemas().items():
        (TARGET / name).write_text(content, encoding="utf-8")
