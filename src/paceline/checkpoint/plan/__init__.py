"""The content of a file to be written: which bytes it consists of, and reading them from the source files."""
