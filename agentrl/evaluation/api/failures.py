"""What an answer that is no success means: try again, this conversation is refused, or give up."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from agentrl.errors import AgentRLError, ConfigError, InfrastructureError

_CONTEXT = re.compile(
    r"context.{0,24}(length|window|size)|context_length_exceeded|prompt is too long|too many tokens"
    r"|request_too_large|input is too long",
    re.IGNORECASE,
)
_NO_CREDIT = re.compile(
    r"billing|credit balance|insufficient.{0,10}(balance|credit)", re.IGNORECASE
)


class Transient(InfrastructureError):
    """May work at another try. `wait`: seconds that the server asks for; None: it does not say."""

    def __init__(self, message: str, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait


class Refused(InfrastructureError):
    """The endpoint does not take this conversation; another try would be the same."""


class ContextExceeded(Refused):
    """The conversation has outgrown the model's context."""


def failure(status: int, headers: Mapping[str, str], body: str, name: str) -> AgentRLError:
    """The error for an HTTP status that is no success; `body` is one line without keys."""
    said = f"HTTP {status}: {_words(body)}"
    where = f"config key 'models.{name}"
    if (
        status == 402
        or (status in (400, 403) and _NO_CREDIT.search(body))
        or (status == 429 and "insufficient_quota" in body)
    ):
        return ConfigError(
            f"{where}': no credit is left ({said}); run the same command again when there is, it goes on"
        )
    if status in (401, 403):
        return ConfigError(f"{where}.key_variable': the endpoint refuses the key ({said})")
    if status in (404, 405) or 300 <= status < 400:
        return ConfigError(
            f"{where}.base_url': there is no such address or model ({said}); see base_url, protocol, model"
        )
    if status in (408, 409, 425, 429) or status >= 500:
        return Transient(said, retry_after(headers))
    if status == 413 or (status in (400, 422) and _CONTEXT.search(body)):
        return ContextExceeded(said)
    return Refused(said)


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds that `retry-after-ms` or `Retry-After` (a number or a date) ask for."""
    milliseconds, value = headers.get("retry-after-ms"), headers.get("retry-after")
    for text, scale in ((milliseconds, 1e-3), (value, 1.0)):
        try:
            seconds = float(text or "") * scale
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    try:
        date = parsedate_to_datetime(value or "")
    except ValueError:
        return None
    date = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, (date - (now or datetime.now(UTC))).total_seconds())


def _words(body: str) -> str:
    """What an error says, of the many shapes there are; else its beginning."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        data = None
    for key in ("error", "message", "detail"):
        inner = data.get(key) if isinstance(data, dict) else None
        if isinstance(inner, dict):
            inner = inner.get("message")
        if isinstance(inner, str):
            return inner[:300]
    return body[:300] or "no words"
