"""What the bindings to the C runtime are generated from: its header, read, and one writer each."""
