"""The light recorder: always on, for any Python loop; a few microseconds a step, a ring of the last steps on disk."""

from paceline.profiling.recorder.recorder import Recorder

__all__ = ["Recorder"]
