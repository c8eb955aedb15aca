"""Saving checkpoints from a training loop."""
