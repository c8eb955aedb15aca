"""What our one-file HTML pages share: the UI's script and style inside the file, and a policy that allows nothing else."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from paceline.core.errors import PacelineError

STATIC = Path(__file__).parent / "static"


def ui_bundle(name: str) -> str:
    """A built file of the UI; built, not committed."""
    try:
        text = (STATIC / name).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise PacelineError(
            f"the report's page is not built: {STATIC / name} is missing",
            hint="run `make ui` in Paceline's source tree (needs npm), or install a released wheel, which carries it",
        ) from error
    closing = "</script" if name.endswith(".js") else "</style"
    return text.replace(closing, closing.replace("/", "\\/"))


def content_policy(script: str, style: str) -> str:
    """Nothing may load, run or be sent but what stands in this file, by hash."""
    scripts = f"script-src '{_hash(script)}'; " if script else ""
    return (
        f"default-src 'none'; {scripts}style-src '{_hash(style)}'; img-src data:; base-uri 'none'; form-action 'none'"
    )


def json_in_html(encoded: bytes) -> str:
    """JSON that cannot end its own script element: `<` is written as \\u003c."""
    text = encoded.decode()
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
