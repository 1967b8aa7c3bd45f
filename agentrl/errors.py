"""The errors that cross floors. Each message names the thing that is wrong and how to mend it.

A bad rollout is data (a status on a trajectory, invariant 3); these exceptions are for what a
person has to see: bad input, a broken back end, damaged state.
"""


class AgentRLError(Exception):
    """Base of every error that is shown to a person as one line, without a traceback."""


class ConfigError(AgentRLError):
    """A configuration that cannot be used: names the key, the value and the fix."""


class UnavailableError(AgentRLError):
    """Something that a task needs cannot exist on this machine: says what is missing and how to get it.

    What needs the task may leave it out, visibly; nothing falls back silently (invariant 13).
    """


class DataError(AgentRLError):
    """A malformed game, record or file: names the file (and line) and what is wrong with it."""


class InfrastructureError(AgentRLError):
    """A back end, sandbox, engine or worker failed. Never turned into a reward (invariant 4)."""


class StateError(AgentRLError):
    """Saved training state that is damaged, locked or belongs to another run."""
