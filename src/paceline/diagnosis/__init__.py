"""Diagnosis: rules find what slows a run, who is at fault, how sure that is, and what fixing it would gain."""
