"""For all tests: Ctrl-C works in the programs they start."""

from __future__ import annotations

import signal

# Started in the background of a script, we inherit that SIGINT is ignored, and so would every program that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
