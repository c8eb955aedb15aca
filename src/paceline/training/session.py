"""cloud_session: inputs in once per host, one output tree, outputs back at any end."""

from __future__ import annotations

import functools
import inspect
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, TypeVar

from paceline.errors import PacelineError
from paceline.storage.location import is_remote
from paceline.training.fetching import Input, fetch_all, input_root, install_requirements, local_path
from paceline.training.homecoming import bring_home
from paceline.training.logs import RankLog
from paceline.training.meeting import Meeting
from paceline.training.monitor import Monitor, close_all
from paceline.training.outputs import OutputTree, default_root
from paceline.training.ranks import Ranks
from paceline.training.sigterm import TermSignal
from paceline.training.telling import log
from paceline.training.uploads import Leftover, Patience, Uploader, tell_leftovers

P = ParamSpec("P")
R = TypeVar("R")
_URL_VARIABLE = "REMOTE_SAVE_URL"
_PLEASE = "please input"
"""How MindFormers' shipped YAML files begin the value of remote_save_url."""


@dataclass(frozen=True)
class Settings:
    """As cloud_session explains them."""

    requirements: bool | str | Path = False
    input_dir: str | Path | None = None
    input_timeout: float = 7200.0
    deadline: float = 600.0
    sigterm_grace: float = 10.0
    strict: bool = False
    patience: Patience = field(default_factory=Patience)


class CloudSession:
    """Enter it around training; afterwards everything is home, or it was said what is not.

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
        settings: Settings | None = None,
    ) -> None:
        self.ranks = ranks or Ranks.from_environment()
        self.outputs = OutputTree(default_root(output_dir))
        self.remote_save_url = _url(remote_save_url)
        self.inputs: dict[str, Path] = {}
        """Name → where it lies on this host."""
        self.uploader: Uploader | None = None
        """Sends outputs home meanwhile, when somebody (ObsMonitor) asks it to."""
        self.monitors: list[Monitor] = []
        """Closed at the end, before outputs are brought home."""
        self.leftovers: list[Leftover] = []
        """After the end: what did not reach remote_save_url."""
        self._wanted = {name: _input(value) for name, value in inputs.items() if value}
        self._settings = settings or Settings()
        self._meeting: Meeting | None = None
        self._signals: TermSignal | None = None
        self._began = time.time()
        self._once = threading.Lock()
        self._url_before: str | None = None

    def __enter__(self) -> CloudSession:
        self._began = time.time()
        self.outputs.root.mkdir(parents=True, exist_ok=True)
        self._log = RankLog(self.outputs.log(self.ranks.rank), self.ranks)
        log.info("outputs: %s → %s", self.outputs.root, self.remote_save_url or "they stay here (no remote_save_url)")
        try:
            if self.remote_save_url:
                self._url_before = os.environ.get(_URL_VARIABLE)
                os.environ[_URL_VARIABLE] = self.remote_save_url  # for scripts and callbacks that look there
                self.uploader = Uploader(
                    self.outputs, self.remote_save_url, self.ranks, patience=self._settings.patience
                )
            self._meet()
        except BaseException:
            self._leave()
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
            log.error("training ended with %s: %s", type(error).__name__, error)
        problem: Exception | None = None
        try:
            close_all(self.monitors)
        except Exception as found:  # outputs still go home; raised at the end
            problem = found
        try:
            self._finish()
        finally:
            self._leave()
        if problem is not None and error is None:
            raise problem
        if self.leftovers and self._settings.strict and error is None:
            raise PacelineError(
                f"{len(self.leftovers)} files did not reach {self.remote_save_url}", hint="they are listed in the log"
            )

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """As a decorator; the function gets the session if it has a parameter of that name."""
        wants = "session" in inspect.signature(function).parameters

        @functools.wraps(function)
        def wrapped(*words: P.args, **options: P.kwargs) -> R:
            again = CloudSession(
                self.outputs.root, self.remote_save_url, self._wanted, ranks=self.ranks, settings=self._settings
            )
            with again:
                if wants:
                    options["session"] = again
                return function(*words, **options)

        return wrapped

    # -- the beginning -----------------------------------------------------------------------------------------------

    def _meet(self) -> None:
        """What is done once per host."""
        remote = {name: wanted for name, wanted in self._wanted.items() if is_remote(wanted.location)}
        self.inputs = {
            name: local_path(name, wanted.location) for name, wanted in self._wanted.items() if name not in remote
        }
        requirements = _requirements(self._settings.requirements)
        if not (remote or requirements or (self.remote_save_url and self.ranks.local_size > 1)):
            return
        timeout = self._settings.input_timeout

        def work(tell: Callable[[str], None]) -> dict[str, str]:
            if requirements:
                install_requirements(requirements, tell)
            return fetch_all(remote, Path(self._settings.input_dir or input_root()), tell, timeout)

        subject = (
            f"{self.outputs.root}\n{self.remote_save_url}\n{sorted(self._wanted.items(), key=str)}\n{requirements}"
        )
        self._meeting = Meeting(subject, self.ranks)
        self.inputs |= {name: Path(path) for name, path in self._meeting.share(work, timeout).items()}

    # -- the end -----------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Once, from whichever thread comes first."""
        if self.uploader is None or not self._once.acquire(blocking=False):
            return
        self._log.flush()
        self.leftovers = bring_home(self.uploader, self._meeting, deadline=self._settings.deadline, since=self._began)
        if self.leftovers:
            tell_leftovers(self.leftovers, self.uploader.url)
        elif self.ranks.is_leader:
            log.info("outputs are at %s", self.uploader.url)

    def _leave(self) -> None:
        if self._meeting is not None:
            self._meeting.end()
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
    remote_save_url  where outputs go at the end; None: $REMOTE_SAVE_URL, else they stay here
    inputs           {name: path, obs://, s3:// or ssh:// URL, or Input(url, keys)}; remote ones are fetched once per host
    requirements     True: requirements.txt beside the script; or a path; installed once per host
    input_timeout    seconds other ranks wait for the one that fetches
    deadline         seconds for bringing outputs home at the end
    sigterm_grace    seconds for the training loop to get out after SIGTERM, before outputs are brought home without it
    strict           outputs that did not arrive are an error, if training itself had none
    """
    settings = Settings(requirements, input_dir, input_timeout, deadline, sigterm_grace, strict, patience or Patience())
    url = _url(remote_save_url) or os.environ.get(_URL_VARIABLE)
    return CloudSession(output_dir, url, inputs or {}, ranks=ranks, settings=settings)


def _url(text: str | None) -> str | None:
    url = (text or "").strip().rstrip("/")
    return None if not url or url.lower().startswith(_PLEASE) else url


def _input(value: str | Path | Input) -> Input:
    return value if isinstance(value, Input) else Input(str(value))


def _requirements(wanted: bool | str | Path) -> Path | None:
    if not wanted:
        return None
    if wanted is True:
        import __main__

        return Path(getattr(__main__, "__file__", "main.py")).absolute().with_name("requirements.txt")
    return Path(wanted).absolute()
