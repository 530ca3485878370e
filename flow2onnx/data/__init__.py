"""Reading data: what feeds the jobs."""
