"""Speed beside the peers. `python -m benchmarks` runs everything; see README.md in this folder."""
