"""`paceline doctor`: checks of machine, network, credentials and buckets before a job is started."""

from __future__ import annotations

from paceline.jobs.doctor.check import Check, CheckVerdict, DoctorReport
from paceline.jobs.doctor.run_checks import run_checks

__all__ = ["Check", "CheckVerdict", "DoctorReport", "run_checks"]
