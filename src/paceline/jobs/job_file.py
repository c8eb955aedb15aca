"""Read a job description from YAML: paths resolved, values checked, every problem with file and line."""

from __future__ import annotations

from pathlib import Path

import msgspec

from paceline.core.errors import UsageError
from paceline.jobs.backends import check_backend_name
from paceline.jobs.checks import DescriptionProblem, find_problems
from paceline.jobs.description import JobDescription
from paceline.jobs.yaml_to_struct import YamlDocument
from paceline.storage.url import is_remote


def load_job(path: str | Path, backend: str | None = None) -> JobDescription:
    """Read a YAML file, for the backend it names or another one; errors name file and line."""
    if backend is not None:
        check_backend_name(backend)
    document = YamlDocument.read(Path(path))
    return job_of(document.with_values(backend=backend) if backend else document)


def job_of(document: YamlDocument) -> JobDescription:
    """The job in a document, or in a part of one (bench.yaml has its job under a key)."""
    found, lines = document.try_convert(JobDescription)
    hint = "docs/jobs.md lists every key"
    if found is not None:
        found = _with_absolute_paths(found, document.file.absolute().parent)
        if problems := [*_backend_problem(found.backend), *find_problems(found)]:
            lines += [f"{document.where(*each.key)}: {each.text}" for each in problems]
            hint = "see docs/jobs.md; paceline doctor checks more than the description"
    if found is None or lines:
        raise UsageError("\n".join(lines), hint=hint)
    return found


def _backend_problem(name: str) -> list[DescriptionProblem]:
    try:
        check_backend_name(name)
    except UsageError as error:
        return [DescriptionProblem(("backend",), f"{error} ({error.hint})")]
    return []


def _with_absolute_paths(job: JobDescription, base: Path) -> JobDescription:
    """With absolute paths: relative ones count from the directory of the YAML file."""

    def place(where: str) -> str:
        if not where or is_remote(where):
            return where
        if job.backend == "modelarts" and where.startswith("/"):
            return f"obs:/{where}"  # as ModelArts writes it: /bucket/path/
        return str(base / where)

    def places(channels: dict[str, str]) -> dict[str, str]:
        return {name: place(where) for name, where in channels.items()}

    return msgspec.structs.replace(
        job,
        code_dir=str(Path(base / job.code_dir).resolve()),
        code_url=place(job.code_url),
        inputs=places(job.inputs),
        outputs=places(job.outputs),
        output_url=place(job.output_url),
        log_url=place(job.log_url),
        pre_start=msgspec.structs.replace(job.pre_start, agent_wheels=place(job.pre_start.agent_wheels)),
    )
