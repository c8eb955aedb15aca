"""The Run: the tables of all ranks in one store, on one clock, with groups and plausibility checks, offered as SQL views."""
