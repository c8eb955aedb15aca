"""The package version; free of dependencies, because workers of a cluster report it."""

__version__ = "0.2.0"
