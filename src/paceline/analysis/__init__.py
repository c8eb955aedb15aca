"""What the tables mean: pure functions from a run's tables to numbers, each with its formula."""
