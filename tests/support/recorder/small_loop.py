"""A training loop without a framework, recorded by the light recorder; run as a program by the tests.

python small_loop.py FOLDER forever|raise|hang|handler
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

from paceline.profiling import Recorder
from paceline.recorder.watchdog import StallLimit


def main() -> None:
    folder, ending = Path(sys.argv[1]), sys.argv[2]
    if ending == "handler":
        signal.signal(signal.SIGTERM, lambda *_: (folder / "handler").write_text("called"))
    limit = StallLimit(seconds=0.2, factor=2.0) if ending == "hang" else None  # a busy machine stalls others too
    recorder = Recorder(folder / "light", rank=0, steps=100_000, stall=limit).start()
    number = 0
    while not (folder / "handler").exists():
        with recorder.phase("forward_backward"):
            time.sleep(0.002)
            number += 1
            if number == 50 and ending == "raise":
                raise ArithmeticError("the loss is nan")
            while number == 50 and ending == "hang":
                wait_forever()
        recorder.step()
    sys.exit(7)


def wait_forever() -> None:
    time.sleep(0.05)


if __name__ == "__main__":
    main()
