"""cloud_session: download inputs once per host, one output tree, upload outputs on every exit."""

from __future__ import annotations

import functools
import inspect
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from paceline.core.errors import PacelineError
from paceline.storage.url import is_remote
from paceline.training.monitor import Monitor, close_all
from paceline.training.rank_logs import RankLog
from paceline.training.ranks import Ranks
from paceline.training.session.final_upload import upload_remaining
from paceline.training.session.host_leader import HostLeader
from paceline.training.session.input_download import (
    Input,
    download_inputs,
    input_cache_dir,
    install_requirements,
    local_path,
)
from paceline.training.session.output_tree import OutputTree, default_root
from paceline.training.session.sigterm import TermSignal
from paceline.training.session.uploader import Leftover, Patience, Uploader, log_leftovers, warn_if_unreachable

if TYPE_CHECKING:
    from typing import ParamSpec

    P = ParamSpec("P")

_log = logging.getLogger("paceline.training")

R = TypeVar("R")
_URL_VARIABLE = "REMOTE_SAVE_URL"
_PLACEHOLDER = "please input"
"""Start of the placeholder for remote_save_url in MindFormers' YAML files."""


@dataclass(frozen=True)
class SessionSettings:
    """See cloud_session for the meaning of each field."""

    requirements: bool | str | Path = False
    input_dir: str | Path | None = None
    input_timeout: float = 7200.0
    deadline: float = 600.0
    sigterm_grace: float = 10.0
    strict: bool = False
    patience: Patience = field(default_factory=Patience)


class CloudSession:
    """Context manager around training; on exit all outputs are uploaded, or the log lists what is missing.

    with cloud_session(remote_save_url="obs://bucket/run", inputs={"train_dataset_dir": "obs://bucket/data"}) as session:
        train(session.inputs["train_dataset_dir"], session.outputs)
    """

    def __init__(
        self,
        output_dir: str | Path | None,
        remote_save_url: str | None,
        inputs: Mapping[str, str | Path | Input | None],
        *,
        ranks: Ranks | None = None,
        settings: SessionSettings | None = None,
    ) -> None:
        self.ranks = ranks or Ranks.from_environment()
        self.outputs = OutputTree(default_root(output_dir))
        self.remote_save_url = _url(remote_save_url)
        self.inputs: dict[str, Path] = {}
        """Name → path on this host."""
        self.uploader: Uploader | None = None
        """Uploads outputs during training, when ObsMonitor requests it."""
        self.monitors: list[Monitor] = []
        """Closed on exit, before the final upload."""
        self.leftovers: list[Leftover] = []
        """After exit: files that did not reach remote_save_url."""
        self._inputs = {name: _as_input(value) for name, value in inputs.items() if value}
        self._settings = settings or SessionSettings()
        self._leader: HostLeader | None = None
        self._signals: TermSignal | None = None
        self._began = time.time()
        self._once = threading.Lock()
        self._url_before: str | None = None

    def __enter__(self) -> CloudSession:
        self._began = time.time()
        self.outputs.root.mkdir(parents=True, exist_ok=True)
        self._log = RankLog(self.outputs.log(self.ranks.rank), self.ranks)
        _log.info("outputs: %s → %s", self.outputs.root, self.remote_save_url or "not uploaded (no remote_save_url)")
        try:
            if self.remote_save_url:
                self._url_before = os.environ.get(_URL_VARIABLE)
                os.environ[_URL_VARIABLE] = self.remote_save_url  # for scripts and callbacks that read it
                self.uploader = Uploader(
                    self.outputs, self.remote_save_url, self.ranks, patience=self._settings.patience
                )
                if self.ranks.is_leader:
                    warn_if_unreachable(self.remote_save_url)
            self._prepare_host()
        except BaseException:
            self._restore()
            raise
        self._signals = TermSignal(self._finish, self._settings.sigterm_grace)
        self._signals.install()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._signals is not None:
            self._signals.unwinding()
        if error is not None and not (isinstance(error, SystemExit) and error.code in (0, None)):
            _log.error("training ended with %s: %s", type(error).__name__, error)
        problem: Exception | None = None
        try:
            close_all(self.monitors)
        except Exception as found:  # outputs are still uploaded; raised at the end
            problem = found
        try:
            self._finish()
        finally:
            self._restore()
        if problem is not None and error is None:
            raise problem
        if self.leftovers and self._settings.strict and error is None:
            raise PacelineError(
                f"{len(self.leftovers)} files were not uploaded to {self.remote_save_url}", hint="the log lists them"
            )

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """As a decorator; the function receives the session if it has a parameter named `session`."""
        wants = "session" in inspect.signature(function).parameters

        @functools.wraps(function)
        def wrapped(*args: P.args, **options: P.kwargs) -> R:
            session = CloudSession(
                self.outputs.root, self.remote_save_url, self._inputs, ranks=self.ranks, settings=self._settings
            )
            with session:
                if wants:
                    options["session"] = session
                return function(*args, **options)

        return wrapped

    # -- start -------------------------------------------------------------------------------------------------------

    def _prepare_host(self) -> None:
        """Download inputs and install requirements, once per host."""
        remote = {name: given for name, given in self._inputs.items() if is_remote(given.location)}
        self.inputs = {
            name: local_path(name, given.location) for name, given in self._inputs.items() if name not in remote
        }
        requirements = _requirements_file(self._settings.requirements)
        if not (remote or requirements or (self.remote_save_url and self.ranks.local_size > 1)):
            return
        timeout = self._settings.input_timeout

        def download(report: Callable[[str], None]) -> dict[str, str]:
            if requirements:
                install_requirements(requirements, report)
            return download_inputs(remote, Path(self._settings.input_dir or input_cache_dir()), report, timeout)

        subject = (
            f"{self.outputs.root}\n{self.remote_save_url}\n{sorted(self._inputs.items(), key=str)}\n{requirements}"
        )
        self._leader = HostLeader(subject, self.ranks)
        self.inputs |= {name: Path(path) for name, path in self._leader.run_once(download, timeout).items()}

    # -- exit --------------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Final upload; runs once, in the first thread that calls it."""
        if self.uploader is None or not self._once.acquire(blocking=False):
            return
        self._log.flush()
        self.leftovers = upload_remaining(
            self.uploader, self._leader, deadline=self._settings.deadline, since=self._began
        )
        if self.leftovers:
            log_leftovers(self.leftovers, self.uploader.url)
        elif self.ranks.is_leader:
            _log.info("outputs uploaded to %s", self.uploader.url)

    def _restore(self) -> None:
        if self._leader is not None:
            self._leader.close()
        if self._signals is not None:
            self._signals.remove()
        if self.remote_save_url and self._url_before is None:
            os.environ.pop(_URL_VARIABLE, None)
        elif self._url_before is not None:
            os.environ[_URL_VARIABLE] = self._url_before
        self._log.close()


def cloud_session(
    output_dir: str | Path | None = None,
    remote_save_url: str | None = None,
    inputs: Mapping[str, str | Path | Input | None] | None = None,
    *,
    requirements: bool | str | Path = False,
    input_dir: str | Path | None = None,
    input_timeout: float = 7200.0,
    deadline: float = 600.0,
    sigterm_grace: float = 10.0,
    strict: bool = False,
    ranks: Ranks | None = None,
    patience: Patience | None = None,
) -> CloudSession:
    """A context manager, and a decorator for main().

    output_dir       default: $LOCAL_DEFAULT_PATH, /cache/ma-user-work on ModelArts, ./output elsewhere
    remote_save_url  where outputs are uploaded to; None: $REMOTE_SAVE_URL, else they are not uploaded
    inputs           {name: path, obs://, s3:// or ssh:// URL, or Input(url, keys)}; remote ones are downloaded once per host
    requirements     True: requirements.txt next to the script; or a path; installed once per host
    input_timeout    seconds the other ranks wait for the rank that downloads
    deadline         seconds for the final upload
    sigterm_grace    seconds for the training loop to exit after SIGTERM, before outputs are uploaded without it
    strict           raise an error if outputs could not be uploaded (unless training failed itself)
    """
    settings = SessionSettings(
        requirements, input_dir, input_timeout, deadline, sigterm_grace, strict, patience or Patience()
    )
    url = _url(remote_save_url) or os.environ.get(_URL_VARIABLE)
    return CloudSession(output_dir, url, inputs or {}, ranks=ranks, settings=settings)


def _url(text: str | None) -> str | None:
    url = (text or "").strip().rstrip("/")
    return None if not url or url.lower().startswith(_PLACEHOLDER) else url


def _as_input(value: str | Path | Input) -> Input:
    return value if isinstance(value, Input) else Input(str(value))


def _requirements_file(wanted: bool | str | Path) -> Path | None:
    if not wanted:
        return None
    if wanted is True:
        import __main__

        return Path(getattr(__main__, "__file__", "main.py")).absolute().with_name("requirements.txt")
    return Path(wanted).absolute()
