"""The network form of hosting: a controller and workers that speak the protocol of AgentBench.

Nothing above this floor imports it: a run on one machine needs neither its libraries nor its ports.
"""
