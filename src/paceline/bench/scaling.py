"""How well a job grows, and where the time goes that growing costs.

    efficiency(n) = throughput of a rank at n / throughput of a rank at m          m: the smallest size
    grown(part)   = part's ms a step at n - part's ms a step at m      from the recordings of both

Every rank keeps its batch (weak scaling): a step of the larger job does the same work per rank, so without loss it would
take as long as one of the smaller job.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from paceline.bench.result import Loss, Measurement, ProfilePart

WORTH_SAYING = 0.05
"""A part that grew by less than this share of the loss is left out."""
_PARTS = {
    "compute": ("computing", "计算"),
    "overlapped": ("computing behind communication", "与通信重叠的计算"),
    "exposed": ("exposed communication", "未掩盖的通信"),
    "waiting": ("waiting for other ranks", "等待其他卡"),
    "tail": ("the tail of the step", "拖尾"),
    "free": ("idle", "空闲"),
    "data": ("waiting for data", "等待数据"),
}


def with_efficiency(measurements: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """Relative to the smallest size; alone nothing is said."""
    if len(measurements) < 2:
        return tuple(measurements)
    base = measurements[0].per_rank
    return tuple(
        msgspec.structs.replace(each, efficiency=each.per_rank / base if base else None) for each in measurements
    )


def losses(measurements: Sequence[Measurement], cores: int | None) -> tuple[Loss, ...]:
    """What the recordings say about every size that lost time; `cores` of the one host they share, if they do."""
    if len(measurements) < 2 or measurements[0].profile is None:
        return ()
    base = measurements[0]
    return tuple(found for each in measurements[1:] if (found := _loss(base, each, cores)) is not None)


def _loss(base: Measurement, size: Measurement, cores: int | None) -> Loss | None:
    before, after = base.profile, size.profile
    if before is None or after is None or not before.step_ms or not after.step_ms:
        return None
    grown = {part: ms for part in _PARTS if (ms := _ms(after, part) - _ms(before, part))}
    return Loss(
        ranks=size.ranks,
        against=base.ranks,
        step_ms=after.step_ms,
        step_ms_before=before.step_ms,
        grown_ms={part: round(ms, 3) for part, ms in grown.items()},
        sentences=tuple(_sentences(base, size, grown, cores, zh=False)),
        sentences_zh=tuple(_sentences(base, size, grown, cores, zh=True)),
    )


def _sentences(
    base: Measurement, size: Measurement, grown: dict[str, float], cores: int | None, *, zh: bool
) -> list[str]:
    before, after = base.profile, size.profile
    assert before is not None and after is not None and before.step_ms and after.step_ms
    more = after.step_ms - before.step_ms
    said = [_headline(base, size, more, zh=zh)]
    if more > 0:
        said += _where(grown, more, zh=zh)
        said += _shared_cores(size, grown, before, more, cores, zh=zh)
    return said + _finding(after, zh=zh)


def _headline(base: Measurement, size: Measurement, more: float, *, zh: bool) -> str:
    percent = 100 * (size.efficiency or 0)
    before, after = _step(base), _step(size)
    if zh:
        return f"{size.ranks} 卡达到 {base.ranks} 卡每卡速度的 {percent:.0f} %：单步 {after:,.1f} 毫秒，原为 {before:,.1f} 毫秒"
    said = f"{size.ranks} ranks reach {percent:.0f} % of the speed per rank of {base.ranks}"
    return f"{said}: a recorded step takes {after:,.1f} ms, {'not' if more > 0 else 'was'} {before:,.1f}"


def _where(grown: dict[str, float], more: float, *, zh: bool) -> list[str]:
    parts = sorted(((ms, part) for part, ms in grown.items() if ms > WORTH_SAYING * more), reverse=True)
    if not parts:
        return []
    if zh:
        return [f"多出的 {more:,.1f} 毫秒：" + "，".join(f"{_PARTS[part][1]} {ms:+,.1f}" for ms, part in parts)]
    return [f"of the {more:,.1f} ms more: " + ", ".join(f"{_PARTS[part][0]} {ms:+,.1f}" for ms, part in parts)]


def _shared_cores(
    size: Measurement, grown: dict[str, float], before: ProfilePart, more: float, cores: int | None, *, zh: bool
) -> list[str]:
    """Computing alone does not change with the number of ranks: if it does, ranks take something from each other."""
    computing = grown.get("compute", 0.0) + grown.get("overlapped", 0.0)
    alone = _ms(before, "compute") + _ms(before, "overlapped")
    if computing < 0.2 * more or not alone:
        return []
    times = 1 + computing / alone
    crowded = cores is not None and size.ranks > cores
    if zh:
        why = f"{size.ranks} 个进程共用本机 {cores} 个核" if crowded else "各进程共用内存带宽、核或功耗"
        return [f"同样的计算耗时变为 {times:.1f} 倍：{why}"]
    why = f"{size.ranks} ranks share the {cores} cores of this host" if crowded else (
        "ranks on one host share its cores, memory bandwidth or power"
    )  # fmt: skip
    return [f"the same computing takes {times:.1f} times as long: {why}"]


def _finding(profile: ProfilePart, *, zh: bool) -> list[str]:
    """The first thing the diagnosis says about the larger size."""
    findings = (profile.diagnosis or {}).get("findings") or []
    if not findings:
        return []
    title = profile.titles_zh[0] if zh and profile.titles_zh else findings[0]["title"]
    gain = findings[0]["gain"]["percent"]
    return [f"诊断：{title}（修复后快 {gain:.1f} %）" if zh else f"diagnosis: {title} (mended: {gain:.1f} % faster)"]


def _ms(profile: ProfilePart, part: str) -> float:
    return profile.shares.get(part, 0.0) * (profile.step_ms or 0.0)


def _step(measurement: Measurement) -> float:
    return (measurement.profile.step_ms if measurement.profile else None) or 0.0
