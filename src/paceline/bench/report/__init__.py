"""Report pages of benchmark results and of their history, in English and Chinese."""
