"""Readers: one package per format family, from a recording's files to the rows of the tables in core/schema."""
