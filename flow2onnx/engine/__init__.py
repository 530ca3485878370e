"""Compiled jobs on the runtime: sessions, the queue of calls, placement, memory, explanations."""
