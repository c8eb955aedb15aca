"""From the address of --engine to an executor, found through the entry-point group `paceline.executors`."""

from __future__ import annotations

from paceline.core.errors import UsageError
from paceline.core.plugins import load_plugin, plugins
from paceline.run.executors.executor import Executor, ExecutorFactory

GROUP = "paceline.executors"


def executor_for(address: str | None, *, workers: int = 1) -> Executor:
    """dask://host:port, ray://host:port, or processes of this machine (None, "local")."""
    if address is None or address == "local":
        # Without a look at entry points: most sources are read by this process.
        from paceline.run.executors.processes import ProcessExecutor

        return ProcessExecutor(workers)
    scheme, _, place = address.partition("://")
    if not place or scheme not in plugins(GROUP):
        known = ", ".join(f"{name}://host:port" for name in sorted(plugins(GROUP)) if name != "local")
        raise UsageError(f"--engine {address}: unknown engine", hint=f"local, {known}")
    factory: ExecutorFactory = load_plugin(GROUP, scheme)
    return factory(address, workers=workers)
