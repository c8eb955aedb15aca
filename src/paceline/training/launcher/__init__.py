"""Launch one process per card on one or several hosts; watch and stop them together."""
