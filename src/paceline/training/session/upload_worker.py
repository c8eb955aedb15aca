"""Upload worker: a separate process that transfers files, so that it can be killed and never blocks training's threads.

    echo '{"tasks": […], "patience": 60}' | python -m paceline.training.session.upload_worker

Writes one JSON line per task to stdout. Exits when its stdin is closed, that is, when the parent dies.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Mapping

import msgspec

from paceline.core.errors import PacelineError
from paceline.training.session.upload_messages import FailedFile, TransferResult, TransferTask, UploadRequest

_NICE = 10
_RANK_OWNED = re.compile(
    r"\.upload/.*|checkpoint[^/]*/rank_\d+/.*|checkpoint/iteration_\d+/.*|checkpoint/latest_checkpointed_iteration\.txt"
)


def run_transfer(task: TransferTask, patience: float) -> TransferResult:
    """Run one task; failures are returned, not raised."""
    from paceline.storage.transfer.retry import Backoff
    from paceline.storage.transfer.transfer import TransferOptions, transfer
    from paceline.storage.transfer.transfer_pool import TransferLimits
    from paceline.training.session.remote_pruning import is_complete, prune

    try:
        backoff = Backoff(longest_wait=5.0, patience=patience)
        if task.gate and not is_complete(f"{task.target}/{task.gate}", task.world):
            return TransferResult(
                task.source, failures=(FailedFile(task.gate, "files of other ranks are not uploaded yet", True),)
            )
        selection = _SELECTIONS[task.only] if task.keys is None else frozenset(task.keys).__contains__
        report = transfer(
            task.source, task.target, TransferOptions(selection, limits=TransferLimits(task.workers, backoff))
        )
        failures = tuple(FailedFile(each.key, each.reason, each.retryable) for each in report.failures)
        pruned = prune(task) if task.keep_rank >= 0 and not failures else 0
        return TransferResult(
            task.source, report.moved, report.moved_bytes, report.same, pruned, tuple(report.present), failures
        )
    except PacelineError as error:
        return TransferResult(task.source, failures=(FailedFile("", str(error)),), hint=error.hint or "")


def main() -> None:
    os.nice(_NICE)
    line = sys.stdin.buffer.readline()
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    request = msgspec.json.decode(line, type=UploadRequest)
    patience = request.patience
    for task in request.tasks:
        result = run_transfer(task, patience)
        print(msgspec.json.encode(result).decode(), flush=True)
        if any(not each.retry_later for each in result.failures):
            patience = 0.0  # try the other tasks only once, so that the caller hears of the failure soon
    # Skip interpreter shutdown, which would wait for threads that hang in a dead connection.
    os._exit(0)


def _is_record(key: str) -> bool:
    return bool(re.fullmatch(r"rank_\d{7}\.json", key.rpartition("/")[2]))


_SELECTIONS: Mapping[str, Callable[[str], bool]] = {
    "all": lambda key: True,
    "rest": lambda key: not _RANK_OWNED.fullmatch(key),
    "data": lambda key: not _is_record(key),
    "records": _is_record,
}


def _exit_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    main()
