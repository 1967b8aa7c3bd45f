"""What the dashboard shows, as plain data. Bounded, however many sessions there are."""

from __future__ import annotations

import asyncio
import heapq
from typing import Any

from agentrl.hosting.network.link import WireLink
from agentrl.hosting.network.service import ControllerService
from agentrl.hosting.network.watch import GOOD_ENDS, failure_rows
from agentrl.hosting.registry import Session

SESSIONS = 200
"""Live sessions that are listed: those without a call for longest."""


def overview(service: ControllerService) -> dict[str, Any]:
    router, now = service.router, asyncio.get_running_loop().time()
    tasks: dict[str, dict[str, Any]] = {
        task: {
            "task": task,
            "samples": len(offer.indices),
            "waiting": len(router.queues[task]) if task in router.queues else 0,
            "workers": 0,
            "slots": 0,
            "live": 0,
            "started": 0,
            "turns": 0,
            "ends": {},
            "failed": 0,
        }
        for task, offer in service.directory.offers.items()
    }
    for worker in router.workers.values():
        if (row := tasks.get(worker.task)) is not None:
            row["workers"] += 1
            row["slots"] += worker.capacity or 0
            row["live"] += len(worker.sessions)
    for (kind, task, cause), value in service.store.counters.items():
        row = tasks.get(task)
        if row is None:
            continue
        if kind == "ended":
            row["ends"][cause] = value
            row["failed"] += value if cause not in GOOD_ENDS else 0
        else:
            row[kind] = value
    quiet = heapq.nsmallest(SESSIONS, router.sessions.values(), key=lambda s: (s.updated, s.id))
    return {
        "tasks": list(tasks.values()),
        "workers": [
            {
                "id": worker.key,
                "task": worker.task,
                "transport": worker.link.transport if isinstance(worker.link, WireLink) else "",
                "slots": worker.capacity,
                "live": len(worker.sessions),
                "stuck": len(worker.stuck),
                "drained": worker.drained,
                "silent": worker.silent,
                "comparing": worker.doubtful,
                "heard": round(now - worker.seen, 1),
            }
            for worker in router.workers.values()
        ],
        "sessions": [session_row(session, now) for session in quiet],
        "live": len(router.sessions),
        "rates": service.watch.rates(),
        "failures": failure_rows(service.watch.failures),
        "closing": router.closing,
    }


def session_row(session: Session, now: float) -> dict[str, Any]:
    if session.cancelling:
        state = "ending"
    elif session.busy:
        state = "environment" if session.turns else "starting or environment"
    else:
        state = "agent"
    return {
        "id": str(session.id),
        "task": session.task,
        "index": session.index,
        "worker": session.worker.key,
        "turns": session.turns,
        "state": state,
        "age": round(now - session.started, 1),
        "quiet": round(now - session.updated, 1),
    }


def transcript(service: ControllerService, session_id: int) -> dict[str, Any]:
    """Raises `KeyError` for an unknown session."""
    session = service.router.sessions[session_id]
    now = asyncio.get_running_loop().time()
    return {
        **session_row(session, now),
        "born": service.watch.born(session_id),
        "messages": service.watch.transcript(session_id),
    }
