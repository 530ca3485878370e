"""Facts about a finished graph: what may be updated in place, live ranges, bounds."""
