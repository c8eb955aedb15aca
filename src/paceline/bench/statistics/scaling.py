"""Scaling efficiency, and which part of the step grew where efficiency was lost.

    efficiency(n) = throughput per rank at n / throughput per rank at m         m: the smallest size
    grown(part)   = part's ms per step at n - part's ms per step at m           from the recordings of both

Weak scaling: every rank keeps its batch; a step of the larger job does the same work per rank, so without loss it would take
as long as one of the smaller job. Strong scaling: the batch of all ranks together stays, so a step should be n/m times shorter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from paceline.bench.result import Measurement, ProfilePart, ScalingLoss
from paceline.bench.spread import student
from paceline.core.i18n import Language, text
from paceline.diagnosis.finding import Gain

SMALLEST_SHARE = 0.05
"""A part that grew by less than this share of the loss is left out."""
SHARED_WORK = 0.2
"""From this share of the loss on, longer computing is explained by ranks that share a host."""
_PARTS = ("compute", "overlapped", "exposed", "waiting", "tail", "free", "data", "unknown")


def with_efficiency(measurements: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """Relative to the smallest size; a single size has none."""
    if len(measurements) < 2:
        return tuple(measurements)
    base = measurements[0]
    return tuple(
        msgspec.structs.replace(
            each,
            efficiency=each.per_rank / base.per_rank if base.per_rank else None,
            efficiency_interval=_efficiency_interval(base, each),
        )
        for each in measurements
    )


def _efficiency_interval(base: Measurement, size: Measurement) -> float | None:
    """Half of the 95 % interval of the ratio, by the spread of both sizes; the smallest size is 1 by definition."""
    if size is base:
        return 0.0
    sides = (base.throughput, size.throughput)
    if any(each.deviation is None or not each.mean for each in sides) or not base.per_rank:
        return None
    relative = sum(((each.deviation or 0.0) / each.mean) ** 2 / each.count for each in sides)
    freedom = sum(each.count for each in sides) - 2
    return student(freedom) * math.sqrt(relative) * size.per_rank / base.per_rank


def scaling_losses(measurements: Sequence[Measurement], cores: int | None) -> tuple[ScalingLoss, ...]:
    """For every size that was recorded: the parts that grew; `cores` of the one host the ranks share, if they do."""
    if len(measurements) < 2 or measurements[0].profile is None:
        return ()
    base = measurements[0]
    return tuple(found for each in measurements[1:] if (found := _loss(base, each, cores)) is not None)


def _loss(base: Measurement, size: Measurement, cores: int | None) -> ScalingLoss | None:
    before, after = base.profile, size.profile
    if before is None or after is None or not before.step_ms or not after.step_ms:
        return None
    grown = {part: ms for part in _PARTS if (ms := _part_ms(after, part) - _part_ms(before, part))}
    return ScalingLoss(
        ranks=size.ranks,
        against=base.ranks,
        step_ms=after.step_ms,
        step_ms_before=before.step_ms,
        grown_ms={part: round(ms, 3) for part, ms in grown.items()},
        sentences=tuple(_sentences(base, size, grown, cores, "en")),
        sentences_zh=tuple(_sentences(base, size, grown, cores, "zh")),
    )


def _sentences(
    base: Measurement, size: Measurement, grown: dict[str, float], cores: int | None, language: Language
) -> list[str]:
    before, after = base.profile, size.profile
    assert before is not None and after is not None and before.step_ms and after.step_ms
    more = after.step_ms - before.step_ms
    sentences = [
        text(
            "bench.loss_headline",
            language,
            ranks=size.ranks,
            base=base.ranks,
            percent=100 * (size.efficiency or 0),
            after=after.step_ms,
            before=before.step_ms,
        )
    ]
    if more > 0:
        sentences += _grown_parts(grown, more, language)
        sentences += _longer_computing(size, grown, before, more, cores, language)
    return sentences + _first_finding(after, language)


def _grown_parts(grown: dict[str, float], more: float, language: Language) -> list[str]:
    parts = sorted(((ms, part) for part, ms in grown.items() if ms > SMALLEST_SHARE * more), reverse=True)
    if not parts:
        return []
    listed = [f"{text(f'bench.part_{part}', language)} {ms:+,.1f}" for ms, part in parts]
    return [text("bench.loss_parts", language, more=more, parts=("，" if language == "zh" else ", ").join(listed))]


def _longer_computing(
    size: Measurement,
    grown: dict[str, float],
    before: ProfilePart,
    more: float,
    cores: int | None,
    language: Language,
) -> list[str]:
    """Computing does not depend on the number of ranks: where it takes longer, ranks share cores, memory or power."""
    computing = grown.get("compute", 0.0) + grown.get("overlapped", 0.0)
    alone = _part_ms(before, "compute") + _part_ms(before, "overlapped")
    if computing < SHARED_WORK * more or not alone:
        return []
    oversubscribed = cores is not None and size.ranks > cores
    why = "bench.loss_shared_cores" if oversubscribed else "bench.loss_shared_host"
    reason = text(why, language, ranks=size.ranks, cores=cores)
    return [text("bench.loss_computing", language, factor=1 + computing / alone, reason=reason)]


def _first_finding(profile: ProfilePart, language: Language) -> list[str]:
    findings = profile.diagnosis.findings if profile.diagnosis else ()
    if not findings:
        return []
    title = profile.titles_zh[0] if language == "zh" and profile.titles_zh else findings[0].title
    return [text("bench.loss_diagnosis", language, finding=if_fixed(title, findings[0].gain, language))]


def if_fixed(title: str, gain: Gain, language: Language) -> str:
    """A finding's title with what fixing it gains."""
    now, fixed = gain.step_ms_now, gain.step_ms_fixed
    return text("bench.if_fixed", language, title=title, now=now, fixed=fixed, percent=gain.percent)


def _part_ms(profile: ProfilePart, part: str) -> float:
    return profile.shares.get(part, 0.0) * (profile.step_ms or 0.0)
