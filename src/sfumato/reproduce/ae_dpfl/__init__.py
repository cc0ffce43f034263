"""The appendix of AE-DPFL: voting on public records of another domain, and what its own settings cost."""
