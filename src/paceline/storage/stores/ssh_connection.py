"""A synchronous, thread-safe SSH connection over asyncssh; host keys are always verified."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from paceline.core.errors import UsageError
from paceline.storage.secret import Secret
from paceline.storage.store_errors import DeniedError, StorageError, TransientError
from paceline.storage.url import StorageUrl

T = TypeVar("T")
_CIPHERS = "aes128-gcm@openssh.com,aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes256-ctr,aes128-ctr"
"""GCM first: with hardware AES several times faster than asyncssh's default order."""


@dataclass(frozen=True)
class SshLogin:
    """Login settings in addition to ~/.ssh/config, the keys in ~/.ssh and the agent."""

    password: Secret | None = None
    key_file: str | None = None
    known_hosts: str | None = None


@dataclass(frozen=True)
class CommandResult:
    status: int
    output: bytes
    error: str


class SshConnection:
    """Connects on first use, and again after the connection was lost."""

    def __init__(self, url: StorageUrl, login: SshLogin) -> None:
        self._url, self._login = url, login
        self._where = f"ssh://{url.host}" + (f":{url.port}" if url.port else "")
        self._connection: Any = None
        self._sftp: Any = None
        self._lock = threading.Lock()

    def run(self, command: str, data: bytes = b"") -> CommandResult:
        """Run a command on the host; `data` is its standard input. Secrets must never be part of the command."""

        async def work(connection: Any, _: Any) -> CommandResult:
            import asyncssh

            # Without input the command must see an end of file, or it waits for one forever.
            stdin = {"input": data} if data else {"stdin": asyncssh.DEVNULL}
            result = await connection.run(command, encoding=None, **stdin)
            status = 255 if result.exit_status is None else int(result.exit_status)
            return CommandResult(
                status, bytes(result.stdout or b""), bytes(result.stderr or b"").decode(errors="replace").strip()
            )

        return self.run_async(work)

    def run_async(self, work: Callable[[Any, Any], Coroutine[Any, Any, T]]) -> T:
        """Run `work(connection, sftp)` on the event loop; network failures become TransientError."""
        try:
            import asyncssh
        except ImportError as error:
            raise UsageError("asyncssh is not installed", hint="pip install 'paceline[storage]'") from error

        try:
            connection, sftp = self._connected()
            return _run_on_loop(work(connection, sftp))
        except (asyncssh.ConnectionLost, asyncssh.DisconnectError, asyncssh.ChannelOpenError) as error:
            self.close()
            raise self._to_storage_error(error) from error
        except asyncssh.SFTPError as error:
            lost = isinstance(error, (asyncssh.SFTPConnectionLost, asyncssh.SFTPNoConnection))
            if lost:
                self.close()
                raise TransientError(f"{self._where}: connection lost") from error
            raise
        except UnicodeEncodeError as error:
            raise StorageError(f"{self._where}: a file name is not UTF-8", hint="rename the file") from error
        except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError) as error:
            self.close()
            raise TransientError(f"{self._where}: {error or type(error).__name__}") from error

    def close(self) -> None:
        with self._lock:
            connection, self._connection, self._sftp = self._connection, None, None
        if connection is not None:
            connection.abort()

    def _connected(self) -> tuple[Any, Any]:
        with self._lock:
            if self._connection is None:
                self._connection, self._sftp = _run_on_loop(self._connect())
            return self._connection, self._sftp

    async def _connect(self) -> tuple[Any, Any]:
        import asyncssh

        options: dict[str, Any] = {
            "encryption_algs": _CIPHERS,
            "connect_timeout": 15,
            "login_timeout": 30,
            "keepalive_interval": 10,
            "keepalive_count_max": 3,
        }
        if self._url.port:
            options["port"] = self._url.port
        if self._url.user:
            options["username"] = self._url.user
        if self._login.password:
            options["password"] = self._login.password.reveal()
        if self._login.key_file:
            options["client_keys"] = [self._login.key_file]
        if self._login.known_hosts:
            options["known_hosts"] = self._login.known_hosts
        try:
            connection = await asyncssh.connect(self._url.host, **options)
        except asyncssh.KeyImportError as error:
            raise DeniedError(
                f"{self._where}: the key cannot be used: {error}",
                hint="for a key with a passphrase: run ssh-add and omit --key",
            ) from error
        except (ValueError, OverflowError) as error:
            # The error is not quoted: asyncssh repeats the line it cannot parse, whatever file it was given.
            raise DeniedError(
                f"{self._where}: host name, known_hosts or ~/.ssh/config cannot be parsed",
                hint="check that the ssh command can connect to this host",
            ) from error
        return connection, await connection.start_sftp_client()

    def _to_storage_error(self, error: Exception) -> StorageError:
        import asyncssh

        if isinstance(error, asyncssh.HostKeyNotVerifiable):
            port = f"-p {self._url.port} " if self._url.port else ""
            return DeniedError(
                f"{self._where}: the host key is not in known_hosts, or differs from the one there",
                hint=f"check its fingerprint, then: ssh-keyscan {port}{self._url.host} >> ~/.ssh/known_hosts",
            )
        if isinstance(error, asyncssh.PermissionDenied):
            return DeniedError(
                f"{self._where}: login refused", hint="check user and key, or pass an account file with passwords"
            )
        return TransientError(f"{self._where}: {error}")


# One event loop for all hosts, in its own thread: the rest of Paceline is synchronous.
_loop: asyncio.AbstractEventLoop | None = None
_loop_start = threading.Lock()


def _run_on_loop(work: Coroutine[Any, Any, T]) -> T:
    global _loop
    with _loop_start:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="paceline-ssh", daemon=True).start()
    return asyncio.run_coroutine_threadsafe(work, _loop).result()
