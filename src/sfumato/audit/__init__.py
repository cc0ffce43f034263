"""Attacks that return scores, and scores that become a lower bound on epsilon. A lower bound above the guarantee is a bug in us."""
