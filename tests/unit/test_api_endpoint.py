"""When an endpoint is asked again, how long it waits, and what ends it; on the virtual clock."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from itertools import pairwise

import httpx
import pytest

from agentrl.config import resolve
from agentrl.errors import ConfigError, StateError
from agentrl.evaluation.api.conversation import Request, Said, with_own_ids
from agentrl.evaluation.api.endpoint import Endpoint
from agentrl.evaluation.api.failures import Refused, Transient, failure, retry_after
from agentrl.evaluation.api.usage import Tally, Usage
from agentrl.messages import Message, ToolCall

pytestmark = pytest.mark.looptime

HELLO = Request([Said(Message("user", "Hello."))])
GOOD = {
    "model": "m",
    "choices": [{"message": {"role": "assistant", "content": "Hi."}}],
    "usage": {"prompt_tokens": 90, "completion_tokens": 10},
}


def now():
    return asyncio.get_running_loop().time()


def endpoint(answer, **changes):
    """An endpoint whose server is `answer(number of the request)`; `times` says when it was asked."""
    times = []

    async def handle(request):
        times.append(now())
        got = answer(len(times))
        if asyncio.iscoroutine(got):
            got = await got
        return got if isinstance(got, httpx.Response) else httpx.Response(200, json=got)

    model = {"protocol": "openai-chat", "base_url": "http://test/v1", "model": "m", **changes}
    config = resolve(
        {"tasks": {"alfworld": {}}, "training": {"start": "base"}, "models": {"m": model}}
    )
    made = Endpoint("m", config.models["m"], {}, transport=httpx.MockTransport(handle))
    return made, times


async def test_waits_double_up_to_the_longest_and_never_fall_short():
    asked, times = endpoint(lambda n: httpx.Response(500), first_wait=1, longest_wait=5, attempts=6)
    tally = Tally()
    with pytest.raises(Transient, match="HTTP 500"):
        await asked.ask(HELLO, tally)
    gaps = [after - before for before, after in pairwise(times)]
    for gap, least in zip(gaps, (1, 2, 4, 5, 5), strict=True):
        assert least <= gap <= 1.25 * least
    assert len(set(gaps)) == 5  # no two clients in step
    assert (tally.failures, tally.answers) == (6, 0)


async def test_a_server_that_names_a_time_gets_it_and_everybody_waits():
    slow = httpx.Response(429, headers={"retry-after": "30"})
    asked, times = endpoint(lambda n: slow if n == 1 else GOOD, concurrency=4)
    first = asyncio.create_task(asked.ask(HELLO, Tally()))
    await asyncio.sleep(1)
    others = [asyncio.create_task(asked.ask(HELLO, Tally())) for _ in range(3)]
    await asyncio.gather(first, *others)
    assert times[0] == 0 and len(times) == 5
    assert all(30 <= time <= 37.5 for time in times[1:])


async def test_a_server_that_asks_for_too_long_ends_it_at_once():
    slow = httpx.Response(429, headers={"retry-after": "3600"})
    asked, times = endpoint(lambda n: slow, longest_wait=60)
    with pytest.raises(StateError, match="asks to wait 3600 s, more than longest_wait"):
        await asked.ask(HELLO, Tally())
    assert times == [0] and now() == 0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT"}, 30),
        ({"retry-after": "Wed, 21 Oct 2020 07:28:30 GMT"}, 0),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": ""}, None),
    ],
)
def test_the_forms_of_retry_after(headers, seconds):
    assert retry_after(headers, datetime(2026, 10, 21, 7, 28, tzinfo=UTC)) == seconds


async def test_a_hung_request_costs_its_timeout_and_is_asked_again():
    asked, times = endpoint(
        lambda n: asyncio.sleep(1e9) if n == 1 else GOOD, timeout=20, first_wait=1
    )
    answer = await asked.ask(HELLO, Tally())
    assert answer.message.content == "Hi."
    assert 21 <= times[1] <= 21.25


async def test_a_trickle_is_a_hang_too():
    class Trickle(httpx.AsyncByteStream):
        async def __aiter__(self):
            while True:
                await asyncio.sleep(1)
                yield b" "

    asked, times = endpoint(
        lambda n: httpx.Response(200, stream=Trickle()) if n == 1 else GOOD,
        timeout=20,
        first_wait=1,
    )
    await asked.ask(HELLO, Tally())
    assert 21 <= times[1] <= 21.25


async def test_requests_start_evenly():
    asked, times = endpoint(lambda n: GOOD, requests_per_minute=120, concurrency=50)
    await asyncio.gather(*(asked.ask(HELLO, Tally()) for _ in range(20)))
    assert times == pytest.approx([n * 0.5 for n in range(20)])


async def test_tokens_a_minute_hold_on_average():
    asked, times = endpoint(lambda n: GOOD, tokens_per_minute=600, concurrency=1)
    await asyncio.gather(*(asked.ask(HELLO, Tally()) for _ in range(7)))
    assert times == pytest.approx([n * 10.0 for n in range(7)])  # 100 tokens each


async def test_waiting_for_a_place_is_not_waiting_for_an_answer():
    """A time limit counts from when the request is sent."""
    asked, times = endpoint(
        lambda n: _later(15), timeout=20, concurrency=1, requests_per_minute=1, attempts=1
    )
    await asyncio.gather(*(asked.ask(HELLO, Tally()) for _ in range(3)))
    assert times == [0, 60, 120]


async def _later(seconds):
    await asyncio.sleep(seconds)
    return GOOD


async def test_a_cancelled_request_gives_its_place_back():
    asked, times = endpoint(lambda n: asyncio.sleep(1e9) if n == 1 else GOOD, concurrency=1)
    first = asyncio.create_task(asked.ask(HELLO, Tally()))
    await asyncio.sleep(1)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await asked.ask(HELLO, Tally())
    assert times == [0, 1]


async def test_the_first_refusal_is_a_setting_and_later_ones_are_an_episodes():
    refused = httpx.Response(400, json={"error": {"message": "no such parameter: top_z"}})
    asked, _ = endpoint(lambda n: refused)
    with pytest.raises(
        ConfigError, match=r"models\.m': .*first request: HTTP 400: no such parameter"
    ):
        await asked.ask(HELLO, Tally())
    asked, times = endpoint(lambda n: GOOD if n == 1 else refused)
    await asked.ask(HELLO, Tally())
    with pytest.raises(Refused):
        await asked.ask(HELLO, Tally())
    assert len(times) == 2  # refused once is refused for good


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"\xff\xfe",
        b'{"choices": []}',
        b'{"choices": {}}',
        b'{"choices": [null]}',
        b'{"choices": [{"message": null}]}',
        b'{"choices": [{"message": {"content": 7}}]}',
        b'{"choices": [{"message": {"tool_calls": {"a": 1}}}]}',
        b'{"choices": [{"message": {"tool_calls": [7]}}]}',
        b'{"choices": [{"message": {"tool_calls": [{"function": {}}]}}]}',
        b'{"choices": [{"message": {}}], "usage": {"completion_tokens": "many"}}',
        b'{"choices": [{"message": {}}], "usage": {"completion_tokens": -1}}',
        b'{"error": {"message": "overloaded"}}',
        b"[" * 100_000,
    ],
)
async def test_garbage_is_asked_again(body):
    asked, times = endpoint(lambda n: httpx.Response(200, content=body) if n == 1 else GOOD)
    assert (await asked.ask(HELLO, Tally())).message.content == "Hi."
    assert len(times) == 2


def test_no_status_is_without_a_meaning():
    for status in (*range(300, 309), *range(400, 452), *range(500, 530)):
        error = failure(status, {}, json.dumps({"detail": "why"}), "m")
        assert "why" in str(error) and isinstance(error, (ConfigError, Transient, Refused))


def test_ids_of_calls_are_unique_in_an_episode_and_fit_every_protocol():
    def message(*ids):
        return Message("assistant", "", tuple(ToolCall(i, "say", "{}") for i in ids))

    used = set()
    turns = [("call_1_0", "a", "a"), ("functions.say:0", "b" * 65, ""), ("a", "call_0_2", "fine")]
    got = [
        [call.id for call in with_own_ids(message(*ids), turn, used).tool_calls]
        for turn, ids in enumerate(turns)
    ]
    assert got == [
        ["call_1_0", "a", "call_0_2"],
        ["call_1_0_", "call_1_1", "call_1_2"],
        ["call_2_0", "call_2_1", "fine"],
    ]


def test_costs_by_hand():
    prices = resolve(
        {
            "tasks": {"alfworld": {}},
            "training": {"start": "base"},
            "models": {
                "m": {
                    "protocol": "anthropic", "base_url": "http://x", "model": "m",
                    "prices": {"input": 3, "cached_input": 0.3, "cache_write": 3.75, "output": 15},
                }
            },
        }
    ).models["m"].prices  # fmt: skip
    usage = Usage(1000, 10_000, 2000, 500)
    # 0.003 + 0.003 + 0.0075 + 0.0075
    assert usage.cost(prices) == pytest.approx(0.021)
    assert usage.total == 13_500
    bare = prices.model_copy(update={"cached_input": None, "cache_write": None})
    assert usage.cost(bare) == pytest.approx(0.039 + 0.0075)
    tally = Tally()
    tally.answered(usage)
    tally.answered(usage)
    assert tally.cost(prices) == pytest.approx(0.042) and tally.cost(None) is None
    assert Tally.from_dict(json.loads(json.dumps(tally.to_dict()))) == tally
    tally.answered(None)
    assert tally.cost(prices) is None


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "schlüssel"])
def test_keys_that_fit_no_header_are_not_shown(key):
    config = resolve(
        {
            "tasks": {"alfworld": {}},
            "training": {"start": "base"},
            "models": {
                "m": {"protocol": "anthropic", "base_url": "http://x", "model": "m", "key_variable": "KEY"}
            },
        }
    )  # fmt: skip
    with pytest.raises(ConfigError, match="KEY holds what no header can") as refused:
        Endpoint("m", config.models["m"], {"KEY": key})
    assert key not in str(refused.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"key_variable": "sk-secret"}, "not the name of an environment variable"),
        ({"key_variable": ["sk-secret"]}, "not the name of an environment variable"),
        ({"base_url": "http://me:sk-secret@host/v1"}, "without user, password and query"),
        ({"base_url": "http://host/v1?key=sk-secret"}, "without user, password and query"),
        ({"base_url": "host/v1"}, "is no address"),
        ({"parameters": {"messages": []}}, "parameters.messages"),
        ({"budget": 3}, "cannot be kept without prices"),
        ({"takes_seed": True, "protocol": "anthropic"}, "knows no seed"),
        ({"prompt_cache": True}, "caches by itself"),
    ],
)
def test_settings_that_cannot_be(change, words):
    model = {"protocol": "openai-chat", "base_url": "http://x/v1", "model": "m", **change}
    with pytest.raises(ConfigError, match=words) as refused:
        resolve({"tasks": {"alfworld": {}}, "training": {"start": "base"}, "models": {"m": model}})
    assert "sk-secret" not in str(refused.value)
