"""ObsMonitor: uploads outputs during training; never blocks, retries what was not uploaded."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from paceline.core.errors import UsageError
from paceline.training.monitor import Monitor
from paceline.training.monitor_calls import StopTraining
from paceline.training.ranks import Ranks
from paceline.training.session.output_tree import OutputTree, default_root
from paceline.training.training_state import TrainingState

if TYPE_CHECKING:
    from paceline.training.session.uploader import Patience, Uploader

_log = logging.getLogger("paceline.training")


class ObsMonitor(Monitor):
    """Every `step_upload_frequence` steps and `epoch_upload_frequence` epochs (-1: never), to `target_dir`.

    Each rank uploads its own checkpoints, the first rank of a host everything else. Uploads never overlap: files written
    during a long upload are part of the next one.
    """

    def __init__(
        self,
        src_dir: str | Path | None = None,
        target_dir: str | None = None,
        *,
        step_upload_frequence: int | None = None,
        epoch_upload_frequence: int = -1,
        upload_sequence: int | None = None,
        upload_frequence: int | None = None,
        keep_last: bool = True,
        raise_failures: bool = False,
        deadline: float = 600.0,
        uploader: Uploader | None = None,
        ranks: Ranks | None = None,
        patience: Patience | None = None,
    ) -> None:
        given = {
            name: value
            for name, value in (
                ("step_upload_frequence", step_upload_frequence),
                ("upload_sequence", upload_sequence),
                ("upload_frequence", upload_frequence),
            )
            if value is not None
        }
        if len(set(given.values())) > 1:
            raise UsageError(
                f"ObsMonitor: {' and '.join(given)} set the same interval to different values", hint="set only one"
            )
        self._every = next(iter(given.values()), 100)
        self._epochs = epoch_upload_frequence
        self._source, self._target = src_dir, target_dir or os.environ.get("REMOTE_SAVE_URL")
        self._keep_last, self._raise, self._deadline = keep_last, raise_failures, deadline
        self._uploader, self._shared = uploader, uploader is not None
        self._ranks, self._patience = ranks, patience
        self._last_step = 0

    def train_begin(self, state: TrainingState) -> None:
        from paceline.training.session.uploader import Patience, Uploader

        self._last_step = state.step
        if self._uploader is None:
            if not self._target:
                _log.warning("ObsMonitor: neither target_dir nor remote_save_url is set: nothing will be uploaded")
                return
            ranks = self._ranks or replace(Ranks.from_environment(), rank=state.rank, world_size=state.world_size)
            outputs = OutputTree(default_root(self._source))
            self._uploader = Uploader(outputs, self._target, ranks, self._keep_last, self._patience or Patience())
        self._uploader.keep_last = self._keep_last

    def step_end(self, state: TrainingState) -> None:
        # Not `step % every == 0`: with data sinking, steps may skip the multiples.
        if self._uploader and self._every > 0 and state.step // self._every > self._last_step // self._every:
            self._last_step = state.step
            self._uploader.request()

    def epoch_end(self, state: TrainingState) -> None:
        if self._uploader and self._epochs > 0 and state.epoch % self._epochs == 0:
            self._uploader.request()

    def close(self) -> None:
        if self._uploader is None or self._shared:
            return  # the session uploads the rest when everything is written
        from paceline.training.session.upload_messages import TransferTask
        from paceline.training.session.uploader import log_leftovers

        outputs, url = self._uploader.outputs, self._uploader.url
        rest = [TransferTask(str(outputs.root), url, "rest")] if self._uploader.ranks.is_leader else []
        left = self._uploader.finish(monotonic() + self._deadline, lambda: rest)
        if left:
            log_leftovers(left, url)
            if self._raise:
                raise StopTraining(
                    f"{len(left)} files were not uploaded to {url}; the first: {left[0].path}: {left[0].reason}"
                )
