"""What follows from the numbers of several runs: spread, score, scaling, outliers, expectations."""
