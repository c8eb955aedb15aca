"""The `paceline` command: one module (or package) per command, which parses, calls and prints."""
