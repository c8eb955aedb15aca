"""The one definition of every number people see: pure functions from a run's tables, each with its formula."""
