"""Energy of a run, from the power meters of its machines."""
