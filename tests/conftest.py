"""For all tests: property tests that give the same result every time, and Ctrl-C that works in programs tests start."""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

# `make test` must give the same result every time, also on a busy machine; `make fuzz` looks for new examples.
_patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", _patient, derandomize=True)
settings.register_profile("random", _patient, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# Started in the background of a script, we inherit that SIGINT is ignored, and so would every program that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
