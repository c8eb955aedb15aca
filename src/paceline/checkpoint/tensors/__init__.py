"""Tensors as bytes in files: element types, slices of a tensor, the index of a file."""
