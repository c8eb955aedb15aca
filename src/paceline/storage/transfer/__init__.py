"""Transfers between stores: planned, parallel, resumable, verified."""
