"""Pure functions on tensors: advantages, losses, corrections. No I/O, no async."""
