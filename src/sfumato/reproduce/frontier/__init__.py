"""What was published at an epsilon, what it really costs as it was sampled, and what this library reaches."""

from sfumato.reproduce.frontier.side_by_side import table as table
