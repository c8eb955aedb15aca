"""ais-bench's tester: its configuration, what it is sent, and a server that takes it."""
