"""`paceline msadvisor`: drop-in for the msadvisor command line: same arguments, paths and result JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import typer
from typing_extensions import Annotated

from paceline.cli.console.language import LanguageOption, resolve_language
from paceline.cli.options.source_option import EngineOption, StoreOption, WorkersOption, opened, print_warnings
from paceline.core.atomic_write import atomic_write_text
from paceline.core.errors import UsageError
from paceline.core.i18n import LANGUAGES, Language, text
from paceline.diagnosis.diagnose import examine
from paceline.diagnosis.hardware import default_hardware
from paceline.diagnosis.render import in_words
from paceline.formats.file_selection import needed_for_diagnosis
from paceline.output.html_report import write_html
from paceline.output.json_text import indented_json
from paceline.output.msadvisor import AdvisorResult, advisor_result
from paceline.output.report_data import report_data
from paceline.run.run import Run
from paceline.storage.fetch_source import download_source, fetch_source
from paceline.storage.url import is_remote

DOWNLOADED = Path("profiler")
"""Where the guide has the data of --bucket_name."""
RESULTS = "recommendation"
"""The results, in a directory of the data."""


def msadvisor(
    rank_size: Annotated[int, typer.Option("--rank_size", min=1, help="Ranks the job had.")],
    data: Annotated[Optional[Path], typer.Option("--data", help="Directory with the profiles of all ranks.")] = None,
    bucket_name: Annotated[
        Optional[str], typer.Option("--bucket_name", help="Bucket with the profiles instead: obs://bucket/profiler.")
    ] = None,
    step: Annotated[int, typer.Option("--step", min=0, help="Only this step; 0 = all.")] = 0,
    lang: Annotated[LanguageOption, typer.Option("--lang", help="Language of the result.")] = LanguageOption.auto,
    store: StoreOption = None,
    workers: WorkersOption = None,
    engine: EngineOption = None,
) -> None:
    """Analyse communication as msadvisor's HCCL knowledge base did: same arguments, same result files.

    Example:  paceline msadvisor --rank_size=24 --data=/home/profiler
    """
    language = resolve_language(lang)
    source, target = _places(data, bucket_name, language)
    with opened(source, store, workers, engine) as run:
        steps = _chosen(run, step)
        _check_ranks(run, rank_size)
        examination = examine(run, steps=steps)
        diagnoses = {each: in_words(examination, each) for each in LANGUAGES}
        result = advisor_result(run, diagnoses[language], steps=steps, language=language)
        _print(result, language)
        written = target / "hccl_analysis_result.json"
        atomic_write_text(written, indented_json(result.to_json(), indent=1))
        typer.echo(text("cli.msadvisor.json", language, path=written))
        print_warnings(run)
        # Last, because the page may fail: the result is written by then.
        page = target / "visualization" / "hccl_analysis_result.html"
        hardware = default_hardware()
        report = report_data(
            run,
            diagnoses,
            nominal=hardware.nominal_speeds,
            capacity_for=hardware.memory_for,
            operators=result.names,
        )
        write_html(report, page, language=language)
        typer.echo(text("cli.msadvisor.page", language, place=page.parent))


def _places(data: Path | None, bucket: str | None, language: Language) -> tuple[Path, Path]:
    """Source and target directory; --data wins when both are given, as in msadvisor."""
    if data is not None and is_remote(data):
        return data, Path(RESULTS)
    if data is not None:
        data = fetch_source(data, needed_for_diagnosis)
        if not data.is_dir():
            raise UsageError(f"--data {data}: directory not found")
        return data, data / RESULTS
    if bucket is None:
        raise UsageError("neither --data nor --bucket_name is given", hint="example: --data=/home/profiler")
    if not is_remote(bucket):
        return Path(bucket), Path(RESULTS)
    _download(bucket, language)
    return DOWNLOADED, DOWNLOADED / RESULTS


def _download(bucket: str, language: Language) -> None:
    """To the guide's place; msadvisor deleted what was there, we refuse to mix it with the bucket's."""
    present = download_source(bucket, DOWNLOADED, needed_for_diagnosis).present
    here = (path.relative_to(DOWNLOADED) for path in sorted(DOWNLOADED.rglob("*")) if path.is_file())
    others = (path.as_posix() for path in here if path.parts[0] != RESULTS)
    foreign = [name for name in others if name not in present and needed_for_diagnosis(name)]
    if foreign:
        values = {"n": len(foreign), "place": DOWNLOADED, "bucket": bucket, "first": foreign[0]}
        raise UsageError(
            text("cli.msadvisor.foreign", language, **values),
            hint=text("cli.msadvisor.foreign.hint", language, place=DOWNLOADED),
        )


def _chosen(run: Run, step: int) -> tuple[int, ...] | None:
    if not step:
        return None
    known = [
        row[0] for row in run.sql("SELECT DISTINCT step FROM steps WHERE step IS NOT NULL ORDER BY step").fetchall()
    ]
    if step not in known:
        raise UsageError(f"--step {step}: not recorded", hint=f"recorded: {', '.join(map(str, known)) or 'none'}")
    return (step,)


def _check_ranks(run: Run, rank_size: int) -> None:
    """Warn of missing ranks; the others are analysed all the same."""
    found = {row[0] for row in run.sql("SELECT rank FROM ranks WHERE format IS NOT NULL").fetchall()}
    if len(found) == rank_size:
        return
    missing = sorted(set(range(rank_size)) - found)
    named = f"; missing: {', '.join(map(str, missing[:20]))}{' …' if len(missing) > 20 else ''}" if missing else ""
    typer.echo(f"warning --rank_size is {rank_size}, but {len(found)} ranks were found{named}", err=True)


def _print(result: AdvisorResult, language: Language) -> None:
    """The answer first, then the operators."""
    typer.echo(f"[Advisor Result]\n{result.summary}")
    table = result.findings
    if table.rows:
        typer.echo(f"{table.title}:")
        for title, severity, gain, first in table.rows:
            typer.echo(f"    {title} ({text(f'output.severity.{severity}', language)}, {gain} %)\n        {first}")
    for advice in result.operators:
        typer.echo("\n".join([advice.title, *(f"    {line}" for line in advice.lines)]))
