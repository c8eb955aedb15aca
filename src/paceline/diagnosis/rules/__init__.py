"""Our rules, one module per kind of cause; pyproject.toml registers them as entry points (see diagnosis/rule.py)."""
