"""What outlives a restart, settings that are safe, and the guard."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

from agentrl.errors import ConfigError, StateError
from agentrl.hosting.network.guard import Guard
from agentrl.hosting.network.settings import Access, ControllerSettings
from agentrl.hosting.network.store import BLOCK, Store
from agentrl.hosting.registry import Session, Worker

TOKEN = "a-token-of-sixteen"


def session(store, id_=None, task="t"):
    worker = Worker("http://127.0.0.1:1/api", task, None, 4)
    return Session(id_ or store.next_id(), task, "north", worker, "me", 0.0, 0.0)


async def test_live_sessions_counters_tasks_and_workers_come_back(tmp_path):
    path = tmp_path / "state" / "controller.sqlite"
    store = Store(path)
    assert store.load().sessions == []
    live, over, late = (session(store) for _ in range(3))
    for one in (live, over):
        store.started(one)
    await store.flush()
    store.ended(over, "completed", "")
    store.started(late)
    store.ended(late, "idle", "")  # never written
    store.turned(live)
    store.task("t", ["north", 1])
    store.worker("http://127.0.0.1:1/api", "t", 4, True)
    store.worker("grpc://gone", "t", 4, False)
    store.forget_worker("grpc://gone")
    await store.close()

    again = Store(path)
    stored = again.load()
    assert [(s.id, s.task, s.index, s.worker, s.client) for s in stored.sessions] == [
        (live.id, "t", "north", "http://127.0.0.1:1/api", "me")
    ]
    assert [(w.key, w.capacity, w.drained) for w in stored.workers] == [
        ("http://127.0.0.1:1/api", 4, True)
    ]
    assert stored.tasks == {"t": ["north", 1]}
    assert again.counters == {
        ("started", "t", ""): 3,
        ("turns", "t", ""): 1,
        ("ended", "t", "completed"): 1,
        ("ended", "t", "idle"): 1,
    }
    await again.close()


async def test_a_write_that_nobody_waits_for_comes_before_the_next(tmp_path, monkeypatch):
    """As at the end of a controller, which cancels its keeper in the middle of a write."""
    path = tmp_path / "controller.sqlite"
    store = Store(path)
    store.load()
    begun, go, done, write = threading.Event(), threading.Event(), threading.Event(), store._write

    def slow(*arguments):
        begun.set()
        assert go.wait(10)
        write(*arguments)
        done.set()

    monkeypatch.setattr(store, "_write", slow)
    one = session(store)
    store.started(one)
    keeper = asyncio.create_task(store.flush())
    await asyncio.to_thread(begun.wait, 10)
    keeper.cancel()
    with pytest.raises(asyncio.CancelledError):
        await keeper
    store.ended(one, "completed", "")
    store.started(session(store))
    monkeypatch.setattr(store, "_write", write)
    newer = asyncio.create_task(store.flush())
    await asyncio.wait({newer}, timeout=0.2)  # enough for it to overtake, if it could
    go.set()
    await asyncio.to_thread(done.wait, 10)
    await newer
    await store.close()

    again = Store(path)
    assert len(again.load().sessions) == 1
    assert again.counters == {("started", "t", ""): 2, ("ended", "t", "completed"): 1}
    await again.close()


async def test_ids_never_repeat_whatever_the_clock_and_however_it_ended(tmp_path, monkeypatch):
    path = tmp_path / "controller.sqlite"
    seen: set[int] = set()
    for start in range(4):
        monkeypatch.setattr("time.time", lambda start=start: 1e9 - start * 86_400)
        store = Store(path)
        ids = [store.next_id() for _ in range(BLOCK + 10 if start == 1 else 10)]
        assert all(id_ >= store.first_id for id_ in ids)
        assert not seen & set(ids) and len(set(ids)) == len(ids)
        assert min(ids) > max(seen, default=0)
        seen.update(ids)
        store._database.close()  # as after a kill: nothing is flushed
    assert max(seen) < 2**53, "JavaScript counts exactly so far"


def test_without_a_file_ids_start_anywhere():
    starts = {Store(None).next_id() for _ in range(20)}
    assert len(starts) == 20 and min(starts) > 0 and max(starts) < 2**53


async def test_two_controllers_do_not_share_a_file(tmp_path):
    store = Store(tmp_path / "controller.sqlite")
    with pytest.raises(StateError, match="another controller running on it"):
        Store(tmp_path / "controller.sqlite")
    await store.close()
    (tmp_path / "text").write_text("no database" * 1000)
    with pytest.raises(StateError, match=r"cannot be used as the controller's state"):
        Store(tmp_path / "text")


def test_without_a_token_only_loopback_is_served(tmp_path):
    for host in ("127.0.0.1", "localhost", "::1", "127.3.2.1"):
        ControllerSettings(host=host)
    for host in ("0.0.0.0", "::", "10.0.0.1", "example.com"):
        with pytest.raises(ConfigError, match="without a token only loopback"):
            ControllerSettings(host=host)
        ControllerSettings(host=host, token=TOKEN)
    with pytest.raises(ConfigError, match="give both or none"):
        ControllerSettings(certificate=tmp_path / "c.pem")
    with pytest.raises(ConfigError, match="no such file"):
        ControllerSettings(certificate=tmp_path / "c.pem", private_key=tmp_path / "k.pem")


async def ask(access, **headers):
    """The status that a request with these headers gets."""
    sent = []

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers.items()],
    }
    await Guard(app, access)(scope, None, send)
    return sent[0]["status"]


async def test_the_token_as_bearer_or_as_a_password():
    """The real packages can only send the latter, from `http://user:TOKEN@host`."""
    import base64

    access = Access(token=TOKEN)
    basic = base64.b64encode(f"me:{TOKEN}".encode()).decode()
    assert await ask(access, host="a", authorization=f"Bearer {TOKEN}") == 200
    assert await ask(access, host="a", authorization=f"basic {basic}") == 200
    wrong = (
        "",
        "Bearer",
        "Bearer x",
        f"Token {TOKEN}",
        "Basic ????",
        f"Bearer {TOKEN} ",
        "Basic eA==",
    )
    for value in wrong:
        assert await ask(access, host="a", authorization=value) == 401, value
    assert await ask(access, host="a") == 401


async def test_no_other_page_of_a_browser_may_speak():
    access = Access()
    assert await ask(access, host="127.0.0.1:5020") == 200
    assert await ask(access, host="localhost:5020", origin="http://localhost:5020") == 200
    assert await ask(access, host="[::1]:5020") == 200
    assert await ask(access, host="127.0.0.1:5020", origin="https://evil.example") == 403
    assert await ask(access, host="127.0.0.1:5020", origin="null") == 403
    # a name that was made to point here
    assert await ask(access, host="evil.example:5020", origin="http://evil.example:5020") == 403
    assert await ask(access, host="") == 403


def test_a_log_line_carries_the_session():
    import logging

    from agentrl.hosting.network.watch import JsonLines

    record = logging.makeLogRecord(
        {
            "name": "agentrl.hosting",
            "levelname": "WARNING",
            "msg": "session %s",
            "args": ("failed",),
        }
    )
    record.session, record.cause = 7, "idle"
    line = json.loads(JsonLines().format(record))
    assert (line["message"], line["session"], line["cause"]) == ("session failed", 7, "idle")


def test_transcripts_are_bounded():
    from agentrl.hosting.network.watch import SHOWN, Watch

    async def run():
        watch = Watch(3)
        one = session(Store(None))
        watch.started(one)
        call = {"function": {"name": "f", "arguments": "{}"}}
        for n in range(5):
            watch.said(one.id, [{"role": "assistant", "content": "x" * n, "tool_calls": [call]}])
        watch.said(one.id, [{"role": "user", "content": "y" * (SHOWN + 5)}])
        kept = watch.transcript(one.id)
        assert [len(message["content"]) for message in kept] == [3, 4, SHOWN]
        assert kept[-1]["cut"] == SHOWN + 5
        assert kept[0]["tool_calls"] == [{"name": "f", "arguments": "{}"}]
        watch.ended(one, "completed", "")
        assert watch.transcript(one.id) == []
        watch.said(one.id, [{"role": "user"}])
        assert watch.transcript(one.id) == []

    asyncio.run(run())
