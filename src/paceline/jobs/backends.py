"""Find the backend of a job through the entry points of group "paceline.job_backends", ours and other packages'.

[project.entry-points."paceline.job_backends"]
kubernetes = "my_package.backend:create_backend"      # a function from a JobDescription to a JobBackend
"""

from __future__ import annotations

from difflib import get_close_matches

from paceline.core.errors import UsageError
from paceline.core.plugins import load_plugin, our_plugins, plugins
from paceline.core.waiting import waiting_for
from paceline.jobs.backend import JobBackend, JobHandle
from paceline.jobs.cloud_place import locate_buckets
from paceline.jobs.description import JobDescription

GROUP = "paceline.job_backends"


def backend_for(job: JobDescription | JobHandle) -> JobBackend:
    """The backend a description names, or the one a job was started on; its libraries are loaded now."""
    described = job.job if isinstance(job, JobHandle) else job
    check_backend_name(job.backend)
    locate_buckets(described)
    with waiting_for(f"the libraries of backend {job.backend}"):
        backend: JobBackend = load_plugin(GROUP, job.backend)(described)
    return backend


def check_backend_name(name: str) -> None:
    """Raises when no installed package registers a backend of this name."""
    if name in our_plugins(GROUP):  # quick: reads the metadata of one distribution only
        return
    known = plugins(GROUP)
    if name not in known:
        near = get_close_matches(name, known, n=1)
        meant = f", did you mean {near[0]!r}?" if near else ""
        raise UsageError(f"unknown backend {name!r}{meant}", hint=f"known: {', '.join(sorted(known))}")
