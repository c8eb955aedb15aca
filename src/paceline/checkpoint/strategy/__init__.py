"""Parallel strategies: which rank holds which slice of which parameter."""
