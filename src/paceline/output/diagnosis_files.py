"""Writers of a diagnosis: diagnosis.json, report.html, and msadvisor's result."""

from __future__ import annotations

from pathlib import Path

from paceline.core.atomic_write import atomic_write_text
from paceline.core.errors import UsageError
from paceline.core.i18n import LANGUAGES, text
from paceline.diagnosis.diagnose import diagnose, examine
from paceline.diagnosis.hardware import default_hardware
from paceline.diagnosis.render import in_words
from paceline.output.html_report import write_html
from paceline.output.json_text import indented_json
from paceline.output.msadvisor import advisor_result
from paceline.output.report_data import report_data
from paceline.output.writer import ExportOptions
from paceline.run.run import Run


class DiagnosisWriter:
    """The diagnosis as JSON, schema "paceline.diagnosis/1"."""

    def default_name(self, source: str) -> str:
        return f"{source}-diagnosis.json"

    def write(self, run: Run, target: Path, options: ExportOptions) -> str:
        _refuse_ranks(options)
        diagnosis = diagnose(run, language=options.language)
        atomic_write_text(target, indented_json(diagnosis))
        return text("output.written.findings", options.language, target=target, count=len(diagnosis.findings))


class HtmlWriter:
    """The report, one HTML file."""

    def default_name(self, source: str) -> str:
        return f"{source}-report.html"

    def write(self, run: Run, target: Path, options: ExportOptions) -> str:
        _refuse_ranks(options)
        examination = examine(run)
        diagnoses = {language: in_words(examination, language) for language in LANGUAGES}
        data = report_data(run, diagnoses, nominal=default_hardware().nominal_speeds)
        write_html(data, target, language=options.language)
        return text("output.written.findings", options.language, target=target, count=len(examination.findings))


class MsadvisorWriter:
    """hccl_analysis_result.json, as msadvisor's HCCL knowledge base wrote it."""

    def default_name(self, source: str) -> str:
        return "hccl_analysis_result.json"

    def write(self, run: Run, target: Path, options: ExportOptions) -> str:
        _refuse_ranks(options)
        diagnosis = diagnose(run, language=options.language)
        result = advisor_result(run, diagnosis, language=options.language)
        atomic_write_text(target, indented_json(result.to_json(), indent=1))
        return text("output.written.findings", options.language, target=target, count=len(diagnosis.findings))


def _refuse_ranks(options: ExportOptions) -> None:
    if options.ranks:
        raise UsageError("--ranks does not go with a diagnosis: ranks are compared with each other")


JSON, HTML, MSADVISOR = DiagnosisWriter(), HtmlWriter(), MsadvisorWriter()
