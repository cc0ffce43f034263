"""One file per command; each loads what it needs when it is called."""
