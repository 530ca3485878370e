"""Fine-tuning: a network of torch, exported, made trainable, and trained without torch."""
