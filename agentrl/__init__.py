"""AgentRL, reproducible: multi-turn, multi-task reinforcement learning of LLM agents (arXiv 2510.04206)."""

__version__ = "0.1.0"
