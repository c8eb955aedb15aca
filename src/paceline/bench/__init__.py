"""Benchmarks: run a job several times and at several sizes, score, compare, report, keep a history, send results."""
