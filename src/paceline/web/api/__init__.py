"""What the server answers: one module per subject, all below /api/v1."""
