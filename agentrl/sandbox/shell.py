"""One login shell kept alive over a terminal: variables, folders and jobs last from script to script.

A script is typed as one `eval` between two marks, so what it prints is known exactly, whatever the terminal
echoes and whatever the prompt is. Its standard input is empty: nothing waits for a person.

Invariant: `run` ends within its time-out and a few seconds, with a text. A script that takes too long is
interrupted; where that does not help, every program of the sandbox is killed and a new shell is started. A shell
that ended is replaced. Only a sandbox in which no shell starts any more is given up (`BrokenSandbox`).
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

from agentrl.sandbox.base import BrokenSandbox, Sandbox, Stream

START_SECONDS = 30.0
INTERRUPT_SECONDS = 3.0
KEPT = 1 << 16
"""Bytes of a script's output that are kept, from its beginning."""
FLOOD = 16 << 20
"""Bytes after which a script that does not stop writing is interrupted."""
LONGEST_SCRIPT = 32_000
_LINE = 3_000
"""Characters of a typed line; a terminal takes 4,095."""
_SETUP = (
    " stty -echo -onlcr noflsh 2>/dev/null; set +o history +o emacs +o vi; PS1= PS2= PS0=;"
    " unset PROMPT_COMMAND HISTFILE MAIL MAILCHECK; printf '\\036R:%s\\036'\n"
)
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][0-9A-B]|[@-Z\\^_=>78])"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Reply:
    """What a script printed. `note` says in words what happened to it or to the shell."""

    output: str
    status: int | None
    note: str = ""


class Shell:
    """The agent's shell in a sandbox; `user` is who it is switched to at every start."""

    def __init__(self, sandbox: Sandbox, user: str | None = None) -> None:
        self.sandbox = sandbox
        self.user = user
        self._stream: Stream | None = None
        self._marks = 0

    async def run(self, script: str, timeout: float) -> Reply:
        if "\0" in script or len(script.encode()) > LONGEST_SCRIPT:
            return Reply(
                "", None, f"not run: a script has at most {LONGEST_SCRIPT} bytes and no NUL"
            )
        stream = self._stream or await self.start()
        self._marks += 1
        reader = _Reader(stream, str(self._marks))
        try:
            await stream.write(_typed(script, reader.mark), timeout)
            ended = await reader.until_end(timeout)
        except (BrokenSandbox, TimeoutError):
            ended = "time"
        if ended == "end":
            return reader.reply("")
        if ended == "eof":
            await self.close()
            return reader.reply("the shell ended; the next script starts in a new one")
        why = "it did not stop writing" if ended == "flood" else f"it took more than {timeout:g} s"
        if await self._interrupt(stream, reader):
            return reader.reply(f"interrupted: {why}")
        await self.close()
        await self.sandbox.clear()
        return reader.reply(f"killed: {why}; the next script starts in a new shell")

    async def _interrupt(self, stream: Stream, reader: _Reader) -> bool:
        """Type Ctrl-C and ask for a sign of life, twice."""
        for _ in range(2):
            try:
                await stream.write(b"\x03", 1.0)
                await stream.write(f" printf '\\036E:{reader.mark}:130\\036'\n".encode(), 1.0)
                if await reader.until_end(INTERRUPT_SECONDS, flood=False) == "end":
                    return True
            except (BrokenSandbox, TimeoutError):
                continue
        return False

    async def start(self) -> Stream:
        """A new shell, after what is left of the old one has been killed where need be."""
        for attempt in range(2):
            if attempt:
                await self.sandbox.clear()
            stream: Stream | None = None
            try:
                stream = await self.sandbox.terminal()
                await self._set_up(stream)
                if self.user is not None:
                    await stream.write(f" exec su - {self.user}\n".encode(), START_SECONDS)
                    await self._set_up(stream)
                self._stream = stream
                return stream
            except (BrokenSandbox, TimeoutError):
                pass  # once more, without what runs there
            finally:
                if stream is not None and self._stream is not stream:
                    await stream.close()
        raise BrokenSandbox("no shell starts in the sandbox any more")

    async def _set_up(self, stream: Stream) -> None:
        self._marks += 1
        mark = f"r{self._marks}"
        await stream.write(_SETUP.replace("%s", mark).encode(), START_SECONDS)
        sought, seen = f"\x1eR:{mark}\x1e".encode(), b""
        async with asyncio.timeout(START_SECONDS):
            while sought not in seen:
                part = await stream.read(START_SECONDS)
                if not part:
                    raise BrokenSandbox("the shell ended as it started")
                seen = (seen + part)[-(1 << 17) :]

    async def close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.close()


class _Reader:
    """Takes the output of one script from a terminal's stream; memory is bounded."""

    def __init__(self, stream: Stream, mark: str) -> None:
        self.stream = stream
        self.mark = mark
        self.status: int | None = None
        self._start = f"\x1eS:{mark}\x1e".encode()
        self._end = re.compile(f"\x1eE:{mark}:([0-9]{{1,3}})\x1e".encode())
        self._seen = bytearray()
        self._started = False
        self._total = 0

    async def until_end(self, timeout: float, flood: bool = True) -> str:
        """What came first: "end" of the script, "eof", too much "time", a "flood"."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            if self._find_end():
                return "end"
            if flood and self._total > FLOOD:
                return "flood"
            left = deadline - loop.time()
            if left <= 0:
                return "time"
            try:
                part = await self.stream.read(left)
            except TimeoutError:
                return "time"
            if not part:
                return "eof"
            self._total += len(part)
            self._seen += part

    def _find_end(self) -> bool:
        if not self._started:
            at = self._seen.find(self._start)
            if at < 0:
                del self._seen[: -len(self._start)]
                return False
            self._started = True
            del self._seen[: at + len(self._start)]
        if found := self._end.search(self._seen):
            self.status = int(found[1])
            del self._seen[found.start() :]
            return True
        if len(self._seen) > KEPT + 4096:
            del self._seen[KEPT:-64]  # an end mark may have begun in the last bytes
        return False

    def reply(self, note: str) -> Reply:
        output = bytes(self._seen[:KEPT]) if self._started else b""
        return Reply(readable(output), self.status, note)


def _typed(script: str, mark: str) -> bytes:
    """Input lines that run `script` in the current shell between two marks."""
    chunks, length = [""], 0
    for byte in script.encode():
        char = chr(byte)
        plain = 32 <= byte < 127 and char not in "\\'!"
        piece = char if plain else f"\\{byte:03o}"
        if length + len(piece) > _LINE:
            chunks.append("")
            length = 0
        chunks[-1] += piece
        length += len(piece)
    quoted = "\\\n".join(f"$'{chunk}'" for chunk in chunks)
    return (
        f" printf '\\036S:{mark}\\036'; {{ eval {quoted}; }} </dev/null; "
        f"printf '\\036E:{mark}:%d\\036' \"$?\"\n"
    ).encode()


def readable(data: bytes) -> str:
    """Text as a person would see it: no escape codes or control characters; binary data is only named."""
    if not data:
        return ""
    text = data.decode("utf-8", "replace")
    strange = text.count("\ufffd") + text.count("\0")
    if strange > max(4, len(text) // 10):
        return f"[binary output, {len(data)} bytes]"
    return _CONTROL.sub("", _ESCAPES.sub("", text))
