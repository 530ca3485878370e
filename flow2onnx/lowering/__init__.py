"""Forms of one computation in standard operators, and how one of them is picked."""
