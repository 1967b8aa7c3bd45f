"""From results to tables and figures; what notebooks call."""
