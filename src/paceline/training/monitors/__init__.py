"""One monitor per file."""
