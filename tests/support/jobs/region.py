"""A region of the cloud on this machine: its host names, with TLS, in a mount namespace with an /etc/hosts of its own.

Nothing of it is configured in Paceline: the names are those that follow from `region: cn-north-4`, port 443 answers, and
the certificate is from a CA that SSL_CERT_FILE names, as users of a private cloud set it.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import secrets
import socket
import ssl
import subprocess
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

REGION = "cn-north-4"
DOMAIN = f"{REGION}.myhuaweicloud.com"
OBS = f"obs.{DOMAIN}"
_CLONE_NEWNS = 0x20000


def missing() -> str:
    """Why there can be none here; empty when there can."""
    return "" if os.geteuid() == 0 else "a mount namespace and port 443 need root"


class CloudRegion:
    """Answers on 127.x.y.z:443; the TLS server name says which service is meant."""

    def __init__(self, directory: Path, *, obs: int, modelarts: int) -> None:
        self.ports = {"obs": obs, "modelarts": modelarts}
        self.address = f"127.{70 + secrets.randbelow(100)}.{secrets.randbelow(250)}.{2 + secrets.randbelow(250)}"
        self.hosts = directory / "hosts"
        self.ca_file = directory / "ca.pem"
        certificate = directory / "server.pem"
        _write_certificates(self.ca_file, certificate)
        names = " ".join(f"{service}.{DOMAIN}" for service in ("obs", "modelarts", "iam", "swr"))
        self.hosts.write_text(f"127.0.0.1 localhost {socket.gethostname()}\n{self.address} {names}\n")
        self.silent: set[str] = set()
        """Services whose connections are taken and never answered."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        context.sni_callback = lambda secure, name, _: setattr(secure, "asked", name or "")
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(context, ready)), daemon=True)
        self._thread.start()
        assert ready.wait(600), "port 443"

    def add_bucket(self, name: str) -> None:
        with self.hosts.open("a") as file:
            file.write(f"{self.address} {name}.{OBS}\n")

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(600)

    async def _run(self, context: ssl.SSLContext, ready: threading.Event) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._serve, self.address, 443, ssl=context)
        ready.set()
        await self._stopped.wait()
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = getattr(writer.get_extra_info("ssl_object"), "asked", "")
        service = "modelarts" if asked.startswith("modelarts.") else "obs"
        try:
            if service in self.silent:
                await asyncio.sleep(120)
            behind_reader, behind_writer = await asyncio.open_connection("127.0.0.1", self.ports[service])
        except (OSError, asyncio.CancelledError):
            writer.close()
            return
        await asyncio.gather(_pump(reader, behind_writer), _pump(behind_reader, writer))


def enter(region: CloudRegion) -> None:
    """This thread, and all threads and processes it starts from now on, resolve names with the region's hosts file.

    Once per test process: it stays for its whole life, and other processes of the machine see nothing of it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "--bind", str(region.hosts), "/etc/hosts"], check=True)


def leave() -> None:
    subprocess.run(["umount", "/etc/hosts"], check=False)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except (OSError, asyncio.CancelledError):
        pass
    finally:
        writer.close()


def _write_certificates(ca_file: Path, server_file: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    now, keys = datetime.now(UTC), [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]

    def made(
        name: str, key: object, issuer: str, signer: object, *extensions: tuple[x509.ExtensionType, bool]
    ) -> bytes:
        builder = x509.CertificateBuilder().serial_number(x509.random_serial_number())
        builder = builder.subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        builder = builder.issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=2))
        builder = builder.public_key(key.public_key())  # type: ignore[attr-defined]
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        signed = builder.sign(signer, hashes.SHA256())  # type: ignore[arg-type]
        return signed.public_bytes(serialization.Encoding.PEM)

    names = [f"{service}.{DOMAIN}" for service in ("obs", "modelarts", "iam", "swr")] + [f"*.{OBS}"]
    ca_file.write_bytes(made("test CA", keys[0], "test CA", keys[0], (x509.BasicConstraints(True, None), True)))
    alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
    private = keys[1].private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    certificate = made(
        "test server", keys[1], "test CA", keys[0], (alternatives, False), (x509.BasicConstraints(False, None), True)
    )
    server_file.write_bytes(private + certificate)
