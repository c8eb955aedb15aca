"""What every rank did when: its chain of work and communication, from collectives, kernels or operations."""
