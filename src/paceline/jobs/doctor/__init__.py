"""What would go wrong with a job, found before it is started: each check says what it found and what to change."""

from __future__ import annotations

from paceline.jobs.doctor.check import Check, Text, Verdict
from paceline.jobs.doctor.examination import examine

__all__ = ["Check", "Text", "Verdict", "examine"]
