"""A page that fine-tunes a language model in the browser."""
