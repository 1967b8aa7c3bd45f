"""Models behind an API, played message by message: no tokens, no training."""
