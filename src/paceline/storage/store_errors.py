"""Errors of stores and transfers: what kind of failure it was decides whether a retry makes sense.

StorageError             what happened, at which URL, and what to do
├── TransientError       may succeed on the next attempt (network, 5xx, truncated response)
│   └── ThrottledError   the server asks for fewer requests
├── MissingError         no such object
├── DeniedError          credentials, permissions, host keys
├── UnsupportedError     the server does not support this request
├── ChangedError         the source differs from its listing: it is still being written
├── CorruptError         the data received differs from the data sent
└── FullError            no space left; other files would fail too
"""

from __future__ import annotations

from paceline.core.errors import PacelineError
from paceline.storage.secret import redact


class StorageError(PacelineError):
    """A store could not do what was asked; the message never holds a secret."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(redact(message), hint=hint)


class TransientError(StorageError):
    pass


class ThrottledError(TransientError):
    pass


class MissingError(StorageError):
    pass


class DeniedError(StorageError):
    pass


class UnsupportedError(StorageError):
    pass


class ChangedError(StorageError):
    pass


class CorruptError(StorageError):
    pass


class FullError(StorageError):
    pass
