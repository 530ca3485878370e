"""Low-rank adapters: language models and others trained beside frozen weights."""
