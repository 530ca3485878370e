"""The fronts: one file for each generation of the API, and what they share."""
