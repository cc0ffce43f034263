"""How long a test waits for what must come. A machine may be slow or busy, and nothing that works waits for the end of it."""

PATIENCE = 300.0  # seconds
