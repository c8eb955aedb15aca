"""ais-bench's configuration files and packages, imported as job.yaml and bench.yaml."""
