"""The run as a dependency graph over all ranks: replayed with faults fixed, and its critical path."""
