"""What a person sees of a running controller: rates, recent failures, transcripts, Prometheus metrics,
and one log line an event with the session's id."""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from agentrl.hosting.network.store import Store
from agentrl.hosting.registry import Session
from agentrl.hosting.router import Observer, Router
from agentrl.messages import Status

log = logging.getLogger("agentrl.hosting")

WINDOW = 60
"""Seconds of throughput that are kept."""
FAILURES = 100
SHOWN = 4000
"""Characters of one message that a transcript keeps."""
GOOD_ENDS = frozenset(status for status in Status if not status.is_infrastructure) | {"cancelled"}
BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)


@dataclass(frozen=True, slots=True)
class Failure:
    """A session that ended for a reason that says nothing about its agent."""

    time: float
    session: int
    task: str
    index: Any
    worker: str
    cause: str
    detail: str


class Watch(Observer):
    """The newest past. Bounded: seconds, failures, and messages a live session."""

    def __init__(self, transcript: int) -> None:
        self.failures: deque[Failure] = deque(maxlen=FAILURES)
        self._transcript = transcript
        self._messages: dict[int, deque[Any]] = {}
        self._born: dict[int, float] = {}
        self._rates: deque[list[int]] = deque(maxlen=WINDOW)
        """Second, turns, ends."""

    def started(self, session: Session) -> None:
        self._messages[session.id] = deque(maxlen=self._transcript)
        self._born[session.id] = time.time()
        log.debug("session started", extra=_facts(session))

    def turned(self, session: Session) -> None:
        self._second()[1] += 1

    def ended(self, session: Session, cause: str, detail: str) -> None:
        self._messages.pop(session.id, None)
        self._born.pop(session.id, None)
        self._second()[2] += 1
        facts = {**_facts(session), "turns": session.turns, "cause": cause}
        if cause in GOOD_ENDS:
            log.info("session ended", extra=facts)
            return
        failure = Failure(
            time.time(),
            session.id,
            session.task,
            session.index,
            session.worker.key,
            cause,
            detail[:300],
        )
        self.failures.appendleft(failure)
        log.warning("session failed", extra={**facts, "detail": failure.detail})

    def said(self, session: int, messages: Iterable[Any]) -> None:
        """Keep what was said in a live session."""
        kept = self._messages.get(session)
        if kept is not None and self._transcript:
            kept.extend(_cut(message) for message in messages)

    def transcript(self, session: int) -> list[Any]:
        return list(self._messages.get(session, ()))

    def born(self, session: int) -> float | None:
        """Wall time of the start; for people, never for decisions."""
        return self._born.get(session)

    def rates(self) -> list[tuple[int, int]]:
        """(turns, ends) of each of the last `WINDOW` whole seconds, oldest first."""
        now = int(time.monotonic())
        found = {second: (turns, ends) for second, turns, ends in self._rates}
        return [found.get(second, (0, 0)) for second in range(now - WINDOW, now)]

    def _second(self) -> list[int]:
        now = int(time.monotonic())
        if not self._rates or self._rates[-1][0] != now:
            self._rates.append([now, 0, 0])
        return self._rates[-1]


class Metrics(Collector):
    """Read off the live state whenever it is asked for; only latencies are recorded."""

    def __init__(self, router: Router, store: Store) -> None:
        self.registry = CollectorRegistry()
        self._router, self._store = router, store
        self.latency = Histogram(
            "agentrl_call_seconds",
            "Time of a client's call, worker included.",
            ["endpoint"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        started = CounterMetricFamily("agentrl_sessions_started", "Sessions.", labels=["task"])
        turns = CounterMetricFamily("agentrl_turns", "Answered turns.", labels=["task"])
        ended = CounterMetricFamily(
            "agentrl_sessions_ended", "Sessions by how they ended.", labels=["task", "cause"]
        )
        for (kind, task, cause), value in self._store.counters.items():
            if kind == "started":
                started.add_metric([task], value)
            elif kind == "turns":
                turns.add_metric([task], value)
            else:
                ended.add_metric([task, cause], value)
        yield from (started, turns, ended)
        queued = GaugeMetricFamily(
            "agentrl_starts_waiting", "Starts without a slot.", labels=["task"]
        )
        for task, queue in self._router.queues.items():
            queued.add_metric([task], len(queue))
        yield queued
        gauges = {
            name: GaugeMetricFamily(f"agentrl_worker_{name}", text, labels=["task", "worker"])
            for name, text in (
                ("sessions", "Live sessions."),
                ("stuck", "Slots of ended sessions that the worker has not given back."),
                ("capacity", "Slots."),
                ("up", "1 where it has been heard of lately."),
            )
        }
        for worker in self._router.workers.values():
            values = (
                len(worker.sessions),
                len(worker.stuck),
                worker.capacity or 0,
                int(not worker.silent),
            )
            for gauge, value in zip(gauges.values(), values, strict=True):
                gauge.add_metric([worker.task, worker.key], value)
        yield from gauges.values()


class JsonLines(logging.Formatter):
    """One JSON object a line; `extra` fields stand beside the message."""

    PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{int(record.msecs):03d}",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {key: value for key, value in vars(record).items() if key not in self.PLAIN}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def failure_rows(failures: Iterable[Failure]) -> list[dict[str, Any]]:
    return [asdict(failure) for failure in failures]


def _facts(session: Session) -> dict[str, Any]:
    return {
        "session": session.id,
        "task": session.task,
        "index": session.index,
        "worker": session.worker.key,
    }


def _cut(message: Any) -> dict[str, Any]:
    """What a reader needs of a message; long texts are cut."""
    content = message.get("content")
    if not isinstance(content, str):
        content = "" if content is None else json.dumps(content, ensure_ascii=False, default=str)
    out: dict[str, Any] = {"role": message.get("role"), "content": content[:SHOWN]}
    if len(content) > SHOWN:
        out["cut"] = len(content)
    if calls := message.get("tool_calls"):
        out["tool_calls"] = [
            {
                "name": str(call.get("function", {}).get("name")),
                "arguments": str(call.get("function", {}).get("arguments"))[:SHOWN],
            }
            for call in calls
            if isinstance(call, dict)
        ]
    return out
