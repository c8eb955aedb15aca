"""The light recorder: always on, for any Python training loop; a few µs per step, the last steps kept on disk."""

from paceline.recorder.recorder import Recorder

__all__ = ["Recorder"]
