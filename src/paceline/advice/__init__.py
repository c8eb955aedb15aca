"""Findings: who is at fault, how sure that is, what mending it would gain, and what to do."""
