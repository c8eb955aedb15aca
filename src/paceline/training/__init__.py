"""Inside and around a training job: inputs in, outputs out, resume that works, one process per card."""
