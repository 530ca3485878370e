"""A page that learns to read a person's digits, in the person's browser."""
