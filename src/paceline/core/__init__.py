"""Used by every package: errors, table definitions, plug-ins, atomic writes, YAML with line numbers, rank tables, version."""
