"""A page of a bucket's listing, read for what a transfer needs.

The SDK makes three objects with checked attributes and a local time of every entry: 5,000 take 0.2 s of a download
that takes three. Its own reader is replaced by this one; all else of the request stays the SDK's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from xml.etree import ElementTree


class Entry(NamedTuple):
    key: str
    size: int
    etag: str
    """Without quotes."""


@dataclass(frozen=True)
class Page:
    objects: tuple[Entry, ...]
    prefixes: tuple[str, ...]
    """"Directories", when the listing was asked to stop at a delimiter."""
    next: str | None
    """Where the next page begins; None: this was the last."""


def read_page(xml: str, headers: Mapping[str, str] | None = None) -> Page:
    """The answer to ListObjects, without its namespace (the SDK removes it).

    >>> read_page("<R><Contents><Key>a</Key><ETag>&quot;5d&quot;</ETag><Size>2</Size></Contents></R>").objects
    (Entry(key='a', size=2, etag='5d'),)
    """
    root = ElementTree.fromstring(xml)
    objects = tuple(_entry(node) for node in root.iterfind("Contents"))
    prefixes = tuple(node.findtext("Prefix") or "" for node in root.iterfind("CommonPrefixes"))
    if (root.findtext("IsTruncated") or "").strip().lower() != "true":
        return Page(objects, prefixes, None)
    # S3 names the next one only when there is a delimiter.
    following = root.findtext("NextMarker") or max((*(each.key for each in objects), *prefixes), default=None)
    if following is None:
        raise ValueError("there is more, but not where")
    return Page(objects, prefixes, following)


def _entry(node: ElementTree.Element) -> Entry:
    size, etag = node.findtext("Size"), node.findtext("ETag")
    return Entry(node.findtext("Key") or "", int(size or 0), (etag or "").strip('"'))
