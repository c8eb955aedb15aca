"""Benchmarks: a job run several times, its result files scored, compared, reported, remembered and sent."""
