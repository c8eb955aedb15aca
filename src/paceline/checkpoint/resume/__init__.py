"""Find the checkpoint to resume from."""

from paceline.checkpoint.resume.resume_point import find_resume_point

__all__ = ["find_resume_point"]
