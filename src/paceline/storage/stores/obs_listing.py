"""Parse one page of a bucket listing (ListObjects).

Replaces the SDK's parser, which creates three objects with checked attributes and a local time for every entry: 5,000
entries take it 0.14 CPU s, and 0.03 to 0.07 here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from xml.etree import ElementTree


class ListedObject(NamedTuple):
    key: str
    size: int
    etag: str
    """Without quotes."""


@dataclass(frozen=True)
class ListingPage:
    objects: tuple[ListedObject, ...]
    prefixes: tuple[str, ...]
    """"Directories", when the request has a delimiter."""
    next: str | None
    """Marker of the next page; None on the last page."""


def parse_listing_page(xml: str, headers: Mapping[str, str] | None = None) -> ListingPage:
    """Parse the response to ListObjects, without its XML namespace (the SDK removes it).

    >>> parse_listing_page("<R><Contents><Key>a</Key><ETag>&quot;5d&quot;</ETag><Size>2</Size></Contents></R>").objects
    (ListedObject(key='a', size=2, etag='5d'),)
    """
    root = ElementTree.fromstring(xml)
    objects = tuple(_entry(node) for node in root.iterfind("Contents"))
    prefixes = tuple(node.findtext("Prefix") or "" for node in root.iterfind("CommonPrefixes"))
    if (root.findtext("IsTruncated") or "").strip().lower() != "true":
        return ListingPage(objects, prefixes, None)
    # S3 returns NextMarker only when there is a delimiter.
    next_marker = root.findtext("NextMarker") or max((*(each.key for each in objects), *prefixes), default=None)
    if next_marker is None:
        raise ValueError("the listing is truncated but has no marker of the next page")
    return ListingPage(objects, prefixes, next_marker)


def _entry(node: ElementTree.Element) -> ListedObject:
    size, etag = node.findtext("Size"), node.findtext("ETag")
    return ListedObject(node.findtext("Key") or "", int(size or 0), (etag or "").strip('"'))
