"""Numbers as recordings write them (text, floats, µs, MB) converted to the integers of the tables (ns, bytes).

Everything that is not a number becomes None: tables hold null for what is unknown.
"""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation
from typing import Any


def number(text: str | None) -> float | None:
    """A finite float; None for "", "-", "N/A" and any other text that is not a number.

    >>> number(" 0.5"), number("-"), number("nan")
    (0.5, None, None)
    """
    try:
        value = float(text) if text else None
    except ValueError:
        return None
    return value if value is not None and math.isfinite(value) else None


def integer(text: str | None) -> int | None:
    value = number(text)
    return None if value is None else whole(value)


def scaled(text: str | None, unit: float) -> int | None:
    """text · unit, rounded to an integer that fits a table's BIGINT.

    >>> scaled("0.00322", 1e6), scaled("1e300", 1e6)
    (3220, None)
    """
    value = number(text)
    return None if value is None else whole(value * unit)


def whole(value: float) -> int | None:
    """The nearest integer; None if it does not fit 64 bits."""
    return round(value) if abs(value) < 2**63 else None


def ns_from_us(text: str | None) -> int | None:
    """Nanoseconds from text in µs, exact for timestamps since 1970; trailing tabs are common and ignored."""
    plain = (text or "").strip()
    before, _, fraction = plain.partition(".")
    if before.isdecimal() and (fraction.isdecimal() or not fraction) and len(before) < 17:
        return int(before) * 1000 + round(int((fraction + "0000")[:4]) / 10)
    value = number(plain)
    return None if value is None or not abs(value) < 2**53 else round(value * 1000)


def scaled_decimal(value: Any, unit: int) -> int | None:
    """A recorded number (or text, possibly with a trailing tab) × unit, calculated in decimal.

    A float loses up to 256 ns of a timestamp since 1970: 1736410576431645.2 µs × 1000.

    >>> scaled_decimal(1736410576431645.2, 1000), scaled_decimal("2300\\t", 1000), scaled_decimal("N/A", 1000)
    (1736410576431645200, 2300000, None)
    """
    if value is None:
        return None
    try:
        result = int((Decimal(str(value).strip()) * unit).to_integral_value())
    except (InvalidOperation, ValueError, OverflowError):
        return None
    return result if abs(result) < 1 << 62 else None


def bytes_from_mb(megabytes: Any) -> int | None:
    """Bytes from Ascend's MB, which are decimal.

    >>> bytes_from_mb(2.064384)
    2064384
    """
    return scaled_decimal(megabytes, 1_000_000)
