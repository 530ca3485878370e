"""Generators of the bindings to the C runtime: its header, read, and one writer each."""
