"""The owner's side of a federation: what a node lets happen to its own data, what it has cost, and its answers. No network."""
