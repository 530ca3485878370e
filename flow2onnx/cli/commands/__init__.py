"""One file for each command, which has its name."""
