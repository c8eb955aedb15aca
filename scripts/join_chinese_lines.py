"""Hook of MkDocs: lines of Chinese text are joined without a blank, which a browser would show for every line break."""

from __future__ import annotations

import re

CHINESE = r"[\u3000-\u303f\u3400-\u9fff\uff00-\uffef]"
CODE = re.compile(r"(<pre.*?</pre>)", re.DOTALL)
BREAK = re.compile(
    rf"(?<={CHINESE})\n *(?={CHINESE})|(?<=[\u3000-\u303f\uff00-\uffef])\n *(?=\S)(?!</?(?:p|pre|ul|ol|li|div)\b)"
)
"""Between two Chinese characters, or after Chinese punctuation, which has a blank of its own."""


def on_page_content(html: str, **_: object) -> str:
    """Called by MkDocs with every page; English pages have none of these characters."""
    return "".join(part if part.startswith("<pre") else BREAK.sub("", part) for part in CODE.split(html))
