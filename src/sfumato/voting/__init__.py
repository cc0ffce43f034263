"""Clients label public records by noisy vote, and the server trains a student: no gradient leaves a client."""
