"""The OS task: an agent with a shell answers questions about a machine or changes it.

`task` is the entry; `records` and `generator` (with `world` and `kinds`) say what is asked, `grading` when it is
solved, `expert` solves it, `prompts` words it. Sandboxes come from `agentrl.sandbox`.
"""
