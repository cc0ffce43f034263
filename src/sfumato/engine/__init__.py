"""Engines run a Round over a Population."""
