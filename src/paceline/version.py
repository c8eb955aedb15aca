"""Which Paceline this is; left of all rooms, because workers of a cluster are asked for theirs."""

__version__ = "0.1.0"
