"""ALFWorld: household text games, played by an engine of our own (source: ALFWorld, AgentBench FC)."""
