"""Networks as job functions: import one, call its jobs, or export them by name."""
