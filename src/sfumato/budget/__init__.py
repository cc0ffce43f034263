"""What each client may spend: budgets from a file or a mapping, and the round that keeps to all of them."""
