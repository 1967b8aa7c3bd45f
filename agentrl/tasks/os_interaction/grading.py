"""When a problem is solved: decided on our side of the tools (invariant 10).

An answer is compared with a truth that was known before the agent acted. Files are read by the sandbox's maker,
not by a program in it, after every program in it has been killed. What only a script can check (a few official
records) is checked in a copy of the sandbox without its programs, whose system files, where the agent changed
them, hold their first content again: an agent cannot replace the tools that grade it. It can still please a
script that looks at the wrong thing; generated problems have no scripts.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence

from agentrl.errors import InfrastructureError
from agentrl.sandbox.base import ENVIRONMENT, Sandbox
from agentrl.sandbox.files import Entry, File, names_in
from agentrl.tasks.os_interaction.records import Matcher, Record, Script, Wanted

CHECK_SECONDS = 30.0
SETTLE_SECONDS, SETTLE_TRIES = 0.2, 20
SYSTEM_FOLDERS = ("/usr/bin/", "/usr/sbin/", "/usr/lib", "/bin/", "/sbin/", "/lib", "/etc/alternatives/",
                  "/etc/ld.so", "/etc/profile", "/etc/bash.bashrc")  # fmt: skip
CHECK_PATH = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"
"""New programs are found, but never before the system's own."""
_UNITS: dict[str, int] = {unit: int(1024**power) for power, unit in enumerate("BKMGTP")}
_SIZE = re.compile(r"([0-9.]+)\s*([BKMGTP]?)(?:I?B)?", re.IGNORECASE)
_INTEGER = re.compile(r"[+-]?[0-9](?:_?[0-9])*")


def same_answer(answer: str, truth: str, matcher: Matcher, strip: bool = True) -> bool:
    if matcher == "exact":
        return answer.strip() == truth.strip() if strip else answer == truth
    if matcher == "pattern":
        return re.search(truth, answer.strip() if strip else answer) is not None
    if matcher == "integer":
        numbers = [_INTEGER.fullmatch(text.strip()) for text in (answer, truth)]
        return all(numbers) and int(answer) == int(truth)
    if matcher == "size":
        sizes = [_bytes(text) for text in (answer, truth)]
        return None not in sizes and sizes[0] == sizes[1]
    if matcher == "contains":
        return bool(answer.strip()) and truth.strip() in answer
    return _plain(answer) == _plain(truth)


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").strip()


def _bytes(text: str) -> float | None:
    """ "4.0K", "4 KiB" and "4096" are the same size."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        return None
    try:
        return float(found[1]) * float(_UNITS[found[2].upper() or "B"])
    except ValueError:
        return None


def holds(wanted: Wanted, entries: Mapping[str, Entry]) -> bool:
    entry = entries.get(wanted.path)
    if wanted.kind == "absent" or entry is None:
        return wanted.kind == "absent" and entry is None
    return (
        entry.kind == wanted.kind
        and (wanted.content is None or _text(entry) == wanted.content.rstrip("\n"))
        and (wanted.mode is None or entry.mode == wanted.mode)
        and (wanted.target is None or entry.target.rstrip("/") == wanted.target.rstrip("/"))
        and (wanted.names is None or tuple(names_in(entries, wanted.path)) == wanted.names)
    )


def _text(entry: Entry) -> str:
    """Line ends at the very end do not count."""
    return entry.content.decode("utf-8", "replace").rstrip("\n")


async def state_holds(wanted: Sequence[Wanted], sandbox: Sandbox) -> bool:
    await sandbox.stop()
    entries = await sandbox.get([entry.path for entry in wanted])
    return all(holds(entry, entries) for entry in wanted)


async def checks_pass(
    checks: Sequence[Script | None],
    answer: str,
    truth: str | None,
    sandbox: Sandbox,
    fresh: Callable[[], Awaitable[Sandbox]],
) -> bool:
    """Run check scripts one after the other; each gets the answer and what the ones before it printed.

    `fresh` makes a sandbox as the agent's was at first.
    """
    await sandbox.stop()
    copy = await sandbox.copy()
    try:
        await _restore(sandbox, copy, fresh)
        parameters = [answer]
        for check in checks:
            if check is None:
                parameters.append(truth or "")
                continue
            ran = await copy.run(
                check.code,
                parameters,
                timeout=CHECK_SECONDS,
                language=check.language,
                environment={**ENVIRONMENT, "PATH": CHECK_PATH},
            )
            if ran.status != 0:
                return False
            parameters.append(ran.output)
        return True
    finally:
        await copy.close()


async def _restore(
    sandbox: Sandbox, copy: Sandbox, fresh: Callable[[], Awaitable[Sandbox]]
) -> None:
    """Give changed system files their first content, but let modes and owners stand: those may be the problem."""
    changed = [path for path in await sandbox.changed() if path.startswith(SYSTEM_FOLDERS)]
    if not changed:
        return
    first = await fresh()
    try:
        before = await first.get(changed)
    finally:
        await first.close()
    after = await sandbox.get(changed)
    restored = []
    for path, old in before.items():
        new = after.get(path)
        if (
            new is None
            or old.kind == "folder"
            or (new.content, new.target) == (old.content, old.target)
        ):
            continue
        owner = new if new.kind == old.kind else old
        link = old.target if old.kind == "link" else None
        restored.append(
            File(path, old.content, owner.mode, owner.user, owner.group, old.modified, link)
        )
    if restored:
        await copy.put(restored)


async def find_truth(record: Record, sandbox: Sandbox) -> str | None:
    """What the example prints on the untouched machine, before the agent comes.

    It runs in a copy, so that what it changes is not there for the agent; but in the sandbox itself where
    programs are what is asked about, for a copy has none.
    """
    if not record.needs_truth:
        return record.answer
    assert record.example is not None
    script = record.example
    in_place = counts_programs(script) or await sandbox.count() > 0
    place = sandbox if in_place else await sandbox.copy()
    try:
        if in_place:
            await _settle(sandbox)
        ran = await place.run(script.code, timeout=CHECK_SECONDS, language=script.language)
    finally:
        if place is not sandbox:
            await place.close()
    if ran.status is None or (ran.status != 0 and not ran.output.strip()):
        why = "took too long" if ran.status is None else f"failed: {ran.errors.strip()[-200:]}"
        raise InfrastructureError(f"the example of the record {why}")
    return ran.output


async def _settle(sandbox: Sandbox) -> None:
    """Wait, not for long, until what an init script left in the background has started."""
    before = await sandbox.count()
    for _ in range(SETTLE_TRIES):
        await asyncio.sleep(SETTLE_SECONDS)
        now = await sandbox.count()
        if now == before:
            return
        before = now


def counts_programs(script: Script) -> bool:
    return _ABOUT_PROGRAMS.search(script.code) is not None


_ABOUT_PROGRAMS = re.compile(r"\b(?:ps|pgrep|pidof|pstree|top|lsof|free|vmstat|uptime)\b|/proc\b")
