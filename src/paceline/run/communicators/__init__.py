"""Communication groups: which ranks belong together, of what kind, and the pipeline that they form."""
