"""One SSH connection to a host, used from threads: keys or agent, host keys always verified."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from paceline.errors import UsageError
from paceline.storage.location import Location
from paceline.storage.secret import Secret
from paceline.storage.store import DeniedError, StorageError, TransientError

T = TypeVar("T")
_FAST = "aes128-gcm@openssh.com,aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes256-ctr,aes128-ctr"
"""GCM first: with hardware AES several times faster than asyncssh's default order."""


@dataclass(frozen=True)
class Login:
    """How to log in beyond what ~/.ssh/config, the keys in ~/.ssh and the agent say."""

    password: Secret | None = None
    key_file: str | None = None
    known_hosts: str | None = None


@dataclass(frozen=True)
class Answer:
    status: int
    output: bytes
    error: str


class Connection:
    """Connects on first use and again after the connection was lost."""

    def __init__(self, location: Location, login: Login) -> None:
        self._location, self._login = location, login
        self._where = f"ssh://{location.host}" + (f":{location.port}" if location.port else "")
        self._live: Any = None
        self._files: Any = None
        self._lock = threading.Lock()

    def run(self, command: str, data: bytes = b"") -> Answer:
        """A command on the other side; `data` goes to its standard input, never a secret into its words."""

        async def work(connection: Any, _: Any) -> Answer:
            import asyncssh

            # Empty input must be an end of file, or the command waits for one for ever.
            feed = {"input": data} if data else {"stdin": asyncssh.DEVNULL}
            done = await connection.run(command, encoding=None, **feed)
            status = 255 if done.exit_status is None else int(done.exit_status)
            return Answer(status, bytes(done.stdout or b""), bytes(done.stderr or b"").decode(errors="replace").strip())

        return self.use(work)

    def use(self, work: Callable[[Any, Any], Coroutine[Any, Any, T]]) -> T:
        """Run `work(connection, sftp)`; what the network did wrong may be tried again."""
        try:
            import asyncssh
        except ImportError as error:
            raise UsageError("asyncssh is not installed", hint="pip install 'paceline[storage]'") from error

        try:
            connection, files = self._connected()
            return _wait(work(connection, files))
        except (asyncssh.ConnectionLost, asyncssh.DisconnectError, asyncssh.ChannelOpenError) as error:
            self.close()
            raise self._meaning(error) from error
        except asyncssh.SFTPError as error:
            lost = isinstance(error, (asyncssh.SFTPConnectionLost, asyncssh.SFTPNoConnection))
            if lost:
                self.close()
                raise TransientError(f"{self._where}: connection lost") from error
            raise
        except UnicodeEncodeError as error:
            raise StorageError(f"{self._where}: a name there is not UTF-8", hint="rename it") from error
        except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError) as error:
            self.close()
            raise TransientError(f"{self._where}: {error or type(error).__name__}") from error

    def close(self) -> None:
        with self._lock:
            live, self._live, self._files = self._live, None, None
        if live is not None:
            live.abort()

    def _connected(self) -> tuple[Any, Any]:
        with self._lock:
            if self._live is None:
                self._live, self._files = _wait(self._connect())
            return self._live, self._files

    async def _connect(self) -> tuple[Any, Any]:
        import asyncssh

        options: dict[str, Any] = {"encryption_algs": _FAST, "connect_timeout": 15, "login_timeout": 30,
                                   "keepalive_interval": 10, "keepalive_count_max": 3}  # fmt: skip
        if self._location.port:
            options["port"] = self._location.port
        if self._location.user:
            options["username"] = self._location.user
        if self._login.password:
            options["password"] = self._login.password.reveal()
        if self._login.key_file:
            options["client_keys"] = [self._login.key_file]
        if self._login.known_hosts:
            options["known_hosts"] = self._login.known_hosts
        try:
            connection = await asyncssh.connect(self._location.host, **options)
        except asyncssh.KeyImportError as error:
            raise DeniedError(
                f"{self._where}: the key cannot be used: {error}",
                hint="a key with a passphrase: ssh-add it, drop --key",
            ) from error
        except (ValueError, OverflowError) as error:
            # Not repeated: asyncssh quotes the line it does not understand, whatever file it was given.
            raise DeniedError(
                f"{self._where}: the host's name, known_hosts or ~/.ssh/config cannot be understood",
                hint="does ssh itself reach it?",
            ) from error
        return connection, await connection.start_sftp_client()

    def _meaning(self, error: Exception) -> StorageError:
        import asyncssh

        if isinstance(error, asyncssh.HostKeyNotVerifiable):
            port = f"-p {self._location.port} " if self._location.port else ""
            return DeniedError(
                f"{self._where}: its host key is not in known_hosts, or is another one",
                hint=f"check its fingerprint, then: ssh-keyscan {port}{self._location.host} >> ~/.ssh/known_hosts",
            )
        if isinstance(error, asyncssh.PermissionDenied):
            return DeniedError(
                f"{self._where}: login refused", hint="check user and key; or give an account file with passwords"
            )
        return TransientError(f"{self._where}: {error}")


# One event loop for all hosts, in a thread of its own: the rest of Paceline stays synchronous.
_loop: asyncio.AbstractEventLoop | None = None
_starting = threading.Lock()


def _wait(work: Coroutine[Any, Any, T]) -> T:
    global _loop
    with _starting:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="paceline-ssh", daemon=True).start()
    return asyncio.run_coroutine_threadsafe(work, _loop).result()
