"""Evidence accounting: what each rank should have recorded against what is there."""
