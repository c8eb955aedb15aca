"""Damaged recordings, checkpoints and configurations: what Paceline makes of them."""
