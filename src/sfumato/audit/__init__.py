"""Attacks on what was trained, and what their scores prove."""
