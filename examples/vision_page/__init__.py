"""A page that fine-tunes a vision model on its visitor's pictures, in the visitor's browser."""
