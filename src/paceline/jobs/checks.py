"""Check a job description before anything is started: names, code, paths, environment, ModelArts settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from paceline.jobs.description import JobDescription
from paceline.storage.url import is_remote

LOG_LEVELS = {
    "GLOG_v": 4,
    "ASCEND_GLOBAL_LOG_LEVEL": 4,
    "ASCEND_GLOBAL_EVENT_ENABLE": 1,
    "ASCEND_SLOG_PRINT_TO_STDOUT": 1,
}
"""Names a pre-start step may set, and the highest value each takes."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STAMP = 20
"""Characters that a time or a version adds to a name; ModelArts allows 64 in all."""


class DescriptionProblem(msgspec.Struct, frozen=True):
    key: tuple[str, ...]
    text: str


def find_problems(job: JobDescription) -> list[DescriptionProblem]:
    """All problems, in the order of the description's keys."""
    return [
        *_names(job),
        *_code(job),
        *_channels(job),
        *_environment(job),
        *_pre_start(job),
        *_agent(job),
        *_cloud(job),
    ]


def _names(job: JobDescription) -> Iterator[DescriptionProblem]:
    if not _NAME.fullmatch(job.job_name):
        yield DescriptionProblem(
            ("job_name",), f"invalid job_name {job.job_name!r}: use 1 to 64 letters, digits, - and _"
        )
    elif job.naming != "exact" and len(job.job_name) > 64 - _STAMP:
        yield DescriptionProblem(
            ("job_name",), f"job_name is longer than {64 - _STAMP} characters: a time or version would not fit"
        )


def _code(job: JobDescription) -> Iterator[DescriptionProblem]:
    code = Path(job.code_dir)
    if not _exists(code, Path.is_dir):
        yield DescriptionProblem(("code_dir",), f"code_dir: {code} is not a directory")
        return
    boot = code / job.boot_file
    if Path(job.boot_file).is_absolute() or ".." in Path(job.boot_file).parts:
        yield DescriptionProblem(("boot_file",), f"boot_file {job.boot_file} is outside of code_dir")
    elif not _exists(boot, Path.is_file):
        yield DescriptionProblem(("boot_file",), f"boot_file: {job.boot_file} not found in {code}")


def _exists(path: Path, check: Callable[[Path], bool]) -> bool:
    """False also for a name that no file can have (too long), for which pathlib raises."""
    try:
        return check(path)
    except OSError:
        return False


def _channels(job: JobDescription) -> Iterator[DescriptionProblem]:
    for name, where in job.inputs.items():
        if not is_remote(where) and not _exists(Path(where), Path.exists):
            yield DescriptionProblem(("inputs", name), f"input {name}: {where} does not exist")
    for kind in ("outputs", "hyperparameters"):
        for name in getattr(job, kind):
            others = [other for other in ("inputs", "outputs") if other != kind and name in getattr(job, other)]
            if others:
                yield DescriptionProblem(
                    (kind, name), f"{name} is also in {others[0]}: the script would get --{name} twice"
                )


def _environment(job: JobDescription) -> Iterator[DescriptionProblem]:
    for name in job.environment:
        if not _VARIABLE.fullmatch(name):
            yield DescriptionProblem(("environment", name), f"{name!r} is not a valid variable name")
        elif job.backend == "modelarts" and name.startswith("MA_"):
            yield DescriptionProblem(
                ("environment", name), f"{name}: names that start with MA_ are reserved by ModelArts"
            )
    if job.backend == "modelarts" and len(job.environment) > 100:
        yield DescriptionProblem(("environment",), f"{len(job.environment)} variables: ModelArts allows 100")


def _pre_start(job: JobDescription) -> Iterator[DescriptionProblem]:
    for name, level in job.pre_start.log_levels.items():
        if name not in LOG_LEVELS:
            yield DescriptionProblem(
                ("pre_start", "log_levels", name), f"unknown log level {name!r}; known: {', '.join(LOG_LEVELS)}"
            )
        elif not 0 <= level <= LOG_LEVELS[name]:
            yield DescriptionProblem(
                ("pre_start", "log_levels", name), f"{name}: {level} is not in 0 … {LOG_LEVELS[name]}"
            )
    for kind, ending in (("wheels", ".whl"), ("packages", ".run")):
        for number, name in enumerate(getattr(job.pre_start, kind)):
            path = Path(job.code_dir) / name
            if path.suffix != ending or not _exists(path, Path.is_file):
                text = f"{name}: {path} not found" if path.suffix == ending else f"{name} is not a {ending} file"
                yield DescriptionProblem(("pre_start", kind, str(number)), text)


def _agent(job: JobDescription) -> Iterator[DescriptionProblem]:
    wanted = job.pre_start
    if wanted.python and not re.fullmatch(r"3\.\d{1,2}", wanted.python):
        yield DescriptionProblem(("pre_start", "python"), f"python: {wanted.python!r} is not a version such as 3.9")
    if wanted.agent_wheels and not any(Path(wanted.agent_wheels).glob("*.whl")):
        yield DescriptionProblem(("pre_start", "agent_wheels"), f"agent_wheels: no wheels in {wanted.agent_wheels}")


def _cloud(job: JobDescription) -> Iterator[DescriptionProblem]:
    if job.backend != "modelarts":
        return
    if not job.code_url:
        yield DescriptionProblem(("backend",), "modelarts needs code_url: the bucket path the code is uploaded to")
    if not job.output_url and not job.outputs:
        yield DescriptionProblem(("backend",), "modelarts needs output_url (or outputs): where results are written")
    if not job.flavor and not job.pool_id:
        yield DescriptionProblem(("backend",), "modelarts needs a flavor, or the pool_id of a dedicated pool")
    if not job.image and job.engine is None:
        yield DescriptionProblem(("backend",), "modelarts needs an engine (name and version) or an image")
    if job.image and job.engine is not None:
        yield DescriptionProblem(("image",), "give an engine or an image, not both")
    places: dict[tuple[str, ...], str] = {
        ("code_url",): job.code_url,
        ("output_url",): job.output_url,
        ("log_url",): job.log_url,
    }
    places |= {("inputs", name): where for name, where in job.inputs.items()}
    places |= {("outputs", name): where for name, where in job.outputs.items()}
    for key, where in places.items():
        if where and not where.startswith(("obs:/", "s3:/")):
            yield DescriptionProblem(key, f"{'.'.join(key)}: {where} is not a bucket: ModelArts can use obs:// only")
