"""Choosing settings: on public data for free, or on clients' own for a price."""
