"""From weights to trajectories: chat tokens, engines, the agent loop, cross-policy sampling."""
