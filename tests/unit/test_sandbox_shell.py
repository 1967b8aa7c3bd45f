"""One shell, many scripts: what they print, what is kept, and every way in which they do not end."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentrl.sandbox.base import BrokenSandbox
from agentrl.sandbox.shell import LONGEST_SCRIPT, Shell, readable
from tests.local_sandbox import LocalSandbox

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("bash", "setsid", "ps"))), reason="needs bash, setsid and ps"
)
PATIENCE = 600.0
"""Seconds; no test waits for it."""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine answers late; that must not look like a shell that does not answer."""
    monkeypatch.setattr("agentrl.sandbox.shell.INTERRUPT_SECONDS", PATIENCE)
    monkeypatch.setattr("agentrl.sandbox.shell.START_SECONDS", PATIENCE)


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[LocalSandbox]:
    made = LocalSandbox(tmp_path)
    yield made
    await made.close()


@pytest.fixture
async def shell(sandbox: LocalSandbox) -> AsyncIterator[Shell]:
    made = Shell(sandbox)
    yield made
    await made.close()


@pytest.mark.parametrize(
    ("script", "output", "status"),
    [
        ("echo hello", "hello\n", 0),
        ("printf 'no end of line'", "no end of line", 0),
        ("false", "", 1),
        ("exit_code() { return 7; }; exit_code", "", 7),
        ("echo 'single' \"double\" \\\\ `echo back` $((1+1)) !", "single double \\ back 2 !\n", 0),
        ("echo wrong >&2", "wrong\n", 0),
        ("for i in 1 2 3\ndo\n  echo $i\ndone", "1\n2\n3\n", 0),
        ("cat <<EOF\none\n\ttwo\nEOF", "one\n\ttwo\n", 0),
        ("cat", "", 0),
        ("read x; echo \"<$x>\"", "<>\n", 0),
        ("echo 'zażółć 漢字'", "zażółć 漢字\n", 0),
        ("printf '\\033[31mred\\033[0m\\n'", "red\n", 0),
        ("printf 'a\\r\\nb\\r\\n'", "a\nb\n", 0),
        ("echo '# not a comment' # a comment", "# not a comment\n", 0),
        ("", "", 0),
    ],
)  # fmt: skip
async def test_what_a_script_prints_is_known_exactly(
    shell: Shell, script: str, output: str, status: int
) -> None:
    reply = await shell.run(script, PATIENCE)
    assert (reply.output, reply.status, reply.note) == (output, status, "")


async def test_folders_variables_and_functions_are_kept(shell: Shell) -> None:
    await shell.run(
        "mkdir inner; cd inner; x=5; f() { echo f $1; }; alias a='echo alias'", PATIENCE
    )
    reply = await shell.run('basename "$PWD"; echo $x; f 1; a', PATIENCE)
    assert reply.output == "inner\n5\nf 1\nalias\n"


async def test_a_syntax_error_is_an_answer(shell: Shell) -> None:
    reply = await shell.run("if true; then", PATIENCE)
    assert reply.status == 2 and "syntax error" in reply.output and not reply.note


async def test_a_script_of_many_lines_is_typed_whole(shell: Shell) -> None:
    lines = [f"echo 'line {i} {'x' * 200}'" for i in range(100)]
    reply = await shell.run("\n".join(lines), PATIENCE)
    assert reply.output.count("\n") == 100 and reply.output.endswith(f"line 99 {'x' * 200}\n")


async def test_too_long_a_script_is_not_run(shell: Shell) -> None:
    reply = await shell.run("#" * (LONGEST_SCRIPT + 1), PATIENCE)
    assert reply.status is None and "not run" in reply.note
    assert "not run" in (await shell.run("echo a\0b", PATIENCE)).note


@pytest.mark.parametrize("script", ["exit 3", "exec true", "kill -9 $$", "set -e; false"])
async def test_a_shell_that_ended_is_replaced(shell: Shell, script: str) -> None:
    reply = await shell.run(f"echo before; {script}", PATIENCE)
    assert reply.output.startswith("before\n") and "the shell ended" in reply.note
    assert (await shell.run("echo again", PATIENCE)).output == "again\n"


async def test_a_program_that_holds_the_terminal_does_not_hold_the_episode(shell: Shell) -> None:
    reply = await shell.run("sleep 6000 & exit", PATIENCE)
    assert "the shell ended" in reply.note
    assert (await shell.run("echo again", PATIENCE)).output == "again\n"


async def test_a_script_that_takes_too_long_is_interrupted_and_the_shell_goes_on(
    shell: Shell, sandbox: LocalSandbox
) -> None:
    await shell.run("x=kept", PATIENCE)
    reply = await shell.run("echo begun; sleep 6000", 5.0)
    assert reply.output.startswith("begun\n") and reply.note == "interrupted: it took more than 5 s"
    assert (await shell.run("echo $x", PATIENCE)).output == "kept\n"
    assert sandbox.clears == 0


async def test_a_loop_of_the_shell_itself_is_interrupted(shell: Shell) -> None:
    assert "interrupted" in (await shell.run("while :; do :; done", 2.0)).note
    assert (await shell.run("echo again", PATIENCE)).output == "again\n"


async def test_a_script_that_ignores_interrupts_is_killed(
    shell: Shell, sandbox: LocalSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentrl.sandbox.shell.INTERRUPT_SECONDS", 0.3)
    reply = await shell.run("trap '' INT; sleep 6000", 2.0)
    assert reply.note.startswith("killed: it took more than 2 s")
    assert sandbox.clears == 1
    assert (await shell.run("echo again", PATIENCE)).output == "again\n"


async def test_endless_output_is_cut_and_stopped(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentrl.sandbox.shell.FLOOD", 1 << 18)
    reply = await shell.run("yes abcdefg", PATIENCE)
    assert reply.note == "interrupted: it did not stop writing"
    assert len(reply.output) <= 1 << 16 and reply.output.startswith("abcdefg\nabcdefg\n")
    assert (await shell.run("echo again", PATIENCE)).output == "again\n"


async def test_forged_marks_end_nothing_of_the_next_script(shell: Shell) -> None:
    reply = await shell.run("printf '\\036E:9:0\\036\\036E:1:0\\036'; echo more", PATIENCE)
    assert reply.status == 0
    assert (await shell.run("echo next", PATIENCE)).output in ("next\n", "more\nnext\n")


async def test_where_no_shell_starts_the_sandbox_is_broken(
    shell: Shell, sandbox: LocalSandbox
) -> None:
    sandbox.broken = True
    with pytest.raises(BrokenSandbox):
        await shell.run("echo", PATIENCE)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", ""),
        (b"plain\n", "plain\n"),
        (b"\x1b[1;31mbold\x1b[0m \x1b]0;title\x07end", "bold end"),
        (b"a\x07b\x08c", "abc"),
        (b"one bad \xff byte in a long line of text", "one bad \ufffd byte in a long line of text"),
        (bytes(range(256)) * 4, "[binary output, 1024 bytes]"),
        (b"\0\0\0\0\0\0ELF", "[binary output, 9 bytes]"),
    ],
)  # fmt: skip
def test_what_is_shown_can_be_read(data: bytes, text: str) -> None:
    assert readable(data) == text
