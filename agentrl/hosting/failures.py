"""Why a call to a session failed: each kind has a name that clients and counters read.

All are infrastructure failures (invariant 4). `cause` is stable and machine-readable; `http` is the
status that the network form answers with.
"""

from __future__ import annotations

from typing import ClassVar

from agentrl.errors import InfrastructureError


class HostingError(InfrastructureError):
    """Base; raised itself for a failure without a finer name."""

    cause: ClassVar[str] = "internal"
    http: ClassVar[int] = 500


class UnknownTask(HostingError):
    cause, http = "unknown_task", 400


class UnknownIndex(HostingError):
    cause, http = "unknown_index", 400


class Busy(HostingError):
    """The session's last call is still under way; the session goes on."""

    cause, http = "busy", 409


class Refused(HostingError):
    """The worker did not take the call; the session is as it was before."""

    cause, http = "refused", 422


class Full(HostingError):
    """The worker has no room for another session (its 406)."""

    cause, http = "worker_full", 503


class QueueFull(HostingError):
    cause, http = "queue_full", 503


class WaitTimeout(HostingError):
    """No worker had room within the time a start may wait."""

    cause, http = "no_worker_free", 503


class Closing(HostingError):
    cause, http = "closing", 503


class CallTimeout(HostingError):
    cause, http = "call_timeout", 504


class WorkerFailed(HostingError):
    """The worker answered with an error or with something that is no answer."""

    cause, http = "worker_failed", 502


class SessionLost(HostingError):
    """The worker does not know the session (any more): it was restarted, or ended it."""

    cause, http = "session_lost", 502


class WorkerLost(HostingError):
    """The worker is gone: its connection broke, or it has been silent for too long."""

    cause, http = "worker_lost", 502


class Unreachable(WorkerLost):
    """The worker could not even be connected to; it got nothing."""
