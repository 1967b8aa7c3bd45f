"""Whole evaluations of models behind an API, against a local server that speaks all protocols and fails."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from pathlib import Path

import pandas as pd
import pytest

from agentrl.config import resolve
from agentrl.config.stages import to_yaml
from agentrl.errors import AgentRLError, ConfigError, StateError
from agentrl.evaluation.api import run as api_run
from agentrl.evaluation.api.run import evaluate_models_to_file, journal_path
from agentrl.reporting.episodes import COLUMNS, read_episodes
from agentrl.reporting.tables import main_table
from tests.api_server import KEY, ApiServer
from tests.fakes import EchoTask
from tests.hosting_kit import cluster

ROOT = Path(__file__).parents[2]
PROTOCOLS = ("openai-chat", "openai-responses", "anthropic")
every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)
ENVIRONMENT = {"TEST_KEY": KEY}
PRICES = {"input": 1.0, "cached_input": 0.1, "cache_write": 2.0, "output": 10.0}
USES = {
    "openai-chat": 60 + 4 + 100,
    "openai-responses": 60 + 4 + 100,
    "anthropic": 50 + 4 + 20 + 100,
}
"""Millionths of a dollar that one answer of the server costs at these prices."""


def config(server, *models, samples=3, evaluation=(), **tasks):
    """Settings with one model `m0`, `m1`, … for each of `models`."""
    shared = {
        "base_url": server.url,
        "model": "gpt",
        "key_variable": "TEST_KEY",
        "first_wait": 0,
        "prices": PRICES,
        "timeout": 60,
    }
    return resolve(
        {
            "tasks": {"echo": {"factory": "tests.fakes:EchoTask"}, **tasks},
            "training": {"start": "base"},
            "evaluation": {"samples": samples, **dict(evaluation)},
            "models": {f"m{n}": shared | model for n, model in enumerate(models)},
        }
    )


async def evaluate(settings, output, models=("m0",), environment=ENVIRONMENT):
    await evaluate_models_to_file(
        settings, models=models, name="gpt", seed=0, split="std", output=output,
        environment=environment,
    )  # fmt: skip
    return read_episodes([output])


def provenance(output):
    return json.loads(output.with_suffix(".provenance.json").read_text())


def lines(output):
    return [json.loads(line) for line in journal_path(output).read_text().splitlines()]


@every_protocol
async def test_the_echo_task_is_solved_and_reported(protocol, tmp_path):
    output = tmp_path / "gpt.parquet"
    async with ApiServer() as server:
        frame = await evaluate(config(server, {"protocol": protocol}), output)
    assert server.problems == []
    assert len(server.requests) == 2 * 2 * 3  # turns, modes, samples
    assert (frame["success"] == 1).all() and (frame["turns"] == 2).all()
    assert (frame["tokens"] == 20).all() and frame["tokens"].dtype == "int64"
    assert list(frame["mode"]) == ["sampled"] * 3 + ["greedy"] * 3
    assert [body["temperature"] for _, _, body in server.requests].count(0.0) == 6
    assert set(frame.columns) == set(COLUMNS)
    account = provenance(output)["models"]["m0"]
    assert (account["answers"], account["failures"], account["served"]) == (12, 0, "gpt")
    assert account["cost"] == pytest.approx(12 * USES[protocol] / 1e6)
    table = main_table(frame)
    assert set(table["success"]) == {1.0} and set(table["mode"]) == {"sampled", "greedy"}


@every_protocol
async def test_the_key_is_in_a_header_and_nowhere_else(protocol, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    output = tmp_path / "gpt.parquet"
    async with ApiServer() as server:
        server.faults.extend(["429 0", "500", "400 odd"][:2])
        await evaluate(config(server, {"protocol": protocol}), output)
        header = "x-api-key" if protocol == "anthropic" else "Authorization"
        assert all(KEY in headers[header] for _, headers, _ in server.requests)
        assert KEY not in json.dumps([body for _, _, body in server.requests])
        server.keys = {"another"}
        with pytest.raises(ConfigError) as refused:
            await evaluate(config(server, {"protocol": protocol}, samples=4), output)
    assert "models.m0.key_variable': the endpoint refuses the key (HTTP 401: Incorrect API key: ***" in str(refused.value)  # fmt: skip
    assert refused.value.__cause__ is None
    assert KEY not in caplog.text and "Told to fail, ***" in caplog.text
    for path in tmp_path.iterdir():
        assert KEY.encode() not in path.read_bytes()


@pytest.mark.parametrize("value", [None, "", " \n"])
async def test_a_missing_key_is_named_before_anything_is_asked(value, tmp_path):
    environment = {} if value is None else {"TEST_KEY": value}
    async with ApiServer() as server:
        with pytest.raises(ConfigError, match=r"models\.m0\.key_variable.*no TEST_KEY"):
            await evaluate(
                config(server, {"protocol": "anthropic"}), tmp_path / "x.parquet",
                environment=environment,
            )  # fmt: skip
        assert server.requests == []


@every_protocol
@pytest.mark.parametrize(
    "fault",
    ["429 0", "429", "500", "503", "529", "408", "html", "half", "empty", "error200", "cut", "cut-before"],
)  # fmt: skip
async def test_faults_that_pass_cost_a_try_and_nothing_else(protocol, fault, tmp_path):
    output = tmp_path / "gpt.parquet"
    async with ApiServer() as server:
        server.faults.extend([fault, fault, "", fault])
        frame = await evaluate(config(server, {"protocol": protocol}), output)
    assert (frame["success"] == 1).all() and len(frame) == 6
    assert len(server.requests) == 12 + 3
    assert provenance(output)["models"]["m0"]["failures"] == 3


@every_protocol
async def test_a_hung_server_is_left_and_asked_again(protocol, tmp_path):
    async with ApiServer() as server:
        server.faults.append("hang")
        model = {"protocol": protocol, "timeout": 0.3, "attempts": 100}
        # One try may time out for a slow machine, all of them do not.
        frame = await evaluate(config(server, model, samples=1), tmp_path / "x.parquet")
        assert (frame["success"] == 1).all()
        assert len(server.requests) > 4


@every_protocol
async def test_answers_without_usage_make_costs_unknown_not_lower(protocol, tmp_path):
    output = tmp_path / "gpt.parquet"
    async with ApiServer() as server:
        server.faults.append("no-usage")
        settings = config(server, {"protocol": protocol}, samples=2, evaluation={"concurrency": 1})
        frame = await evaluate(settings, output)
    assert frame["tokens"].isna().tolist() == [True, False, False, False]
    assert frame["tokens"].iloc[1] == 20 and (frame["success"] == 1).all()
    account = provenance(output)["models"]["m0"]
    assert (account["cost"], account["without_usage"], account["answers"]) == (None, 1, 8)


async def test_an_endpoint_that_fails_to_the_end_is_a_row_without_reward_until_it_is_back(tmp_path):
    output = tmp_path / "gpt.parquet"
    async with ApiServer() as server:
        server.faults.extend(["", "500", "500"])
        model = {"protocol": "openai-chat", "attempts": 2}
        settings = config(server, model, samples=2, evaluation={"concurrency": 1})
        frame = await evaluate(settings, output)
        assert frame["reward"].isna().tolist() == [True, False, False, False]
        assert frame["status"].tolist() == ["task error", *["completed"] * 3]
        assert "HTTP 500: Told to fail, ***" in lines(output)[1]["error"]
        asked = len(server.requests)
        frame = await evaluate(settings, output)
        assert len(server.requests) == asked + 2  # that episode alone
        assert (frame["success"] == 1).all()
        await evaluate(settings, output)
        assert len(server.requests) == asked + 2
    account = provenance(output)["models"]["m0"]
    assert account["answers"] == 1 + 6 + 2 and account["failures"] == 2


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        (["429 insufficient_quota"], "models.m0': no credit is left"),
        (["402"], "no credit is left"),
        (["403"], "models.m0.key_variable': the endpoint refuses the key"),
        (["404"], "models.m0.base_url': there is no such address or model"),
        (["307"], "there is no such address or model"),
        (["400"], "refuses the very first request: HTTP 400"),
        (["context"], "refuses the very first request"),
        (["429 7200"], "asks to wait 7200 s, more than longest_wait"),
    ],
)
async def test_what_cannot_get_better_ends_in_one_line_and_goes_on_later(faults, words, tmp_path):
    output = tmp_path / "gpt.parquet"
    async with ApiServer() as server:
        server.faults.extend(faults)
        settings = config(server, {"protocol": "openai-chat"}, evaluation={"concurrency": 1})
        with pytest.raises(AgentRLError) as ended:
            await evaluate(settings, output)
        assert words in str(ended.value) and "\n" not in str(ended.value)
        assert not output.exists() and len(server.requests) == 1
        assert (await evaluate(settings, output))["success"].eq(1).all()


async def test_a_dead_endpoint_ends_the_evaluation_instead_of_failing_every_episode(tmp_path):
    async with ApiServer() as server:
        settings = config(
            server, {"protocol": "openai-chat", "attempts": 2, "concurrency": 3}, samples=50
        )
    with pytest.raises(AgentRLError, match="4 requests in a row failed all 2 attempts"):
        await evaluate(settings, tmp_path / "x.parquet")


async def test_a_full_context_ends_an_episode_as_a_truncation(tmp_path):
    output = tmp_path / "gpt.parquet"
    async with ApiServer() as server:
        server.faults.extend(["", "context"])
        settings = config(
            server, {"protocol": "openai-chat"}, samples=1, evaluation={"concurrency": 1}
        )
        frame = await evaluate(settings, output)
    assert frame["status"].tolist() == ["agent context limit", "completed"]
    assert frame["reward"].tolist() == [0.0, 1.0]


async def test_a_conversation_that_is_refused_is_one_failed_episode(tmp_path):
    async with ApiServer() as server:
        server.faults.extend(["", "422"])
        settings = config(
            server, {"protocol": "anthropic"}, samples=1, evaluation={"concurrency": 1}
        )
        frame = await evaluate(settings, tmp_path / "x.parquet")
    assert frame["reward"].isna().tolist() == [True, False]
    assert len(server.requests) == 2 + 2  # not asked again: it would be refused again


BROKEN = ['{"text": "st', "", "[]", '"stop"', "null", '{"text": NaN}', '{"text": 7}', "[" * 3000]


@every_protocol
async def test_broken_calls_are_answered_and_taken_back_by_strict_endpoints(protocol, tmp_path):
    """Pitfall 9: the endpoints refuse a history with arguments that are no JSON object."""
    texts = [t for t in BROKEN if protocol != "anthropic" or t in ("[]", '"stop"', '{"text": 7}')]

    def play(heard, turn):
        if turn < len(texts):
            return "", [("say", texts[turn]), ("no such tool!", "{}")]
        return "", [("say", '{"text": "stop"}')]

    output = tmp_path / "gpt.parquet"
    async with ApiServer(play) as server:
        settings = config(
            server, {"protocol": protocol}, samples=1,
            echo={"factory": "tests.integration.test_api_models:LongEcho"},
        )  # fmt: skip
        frame = await evaluate(settings, output)
    assert server.problems == []
    assert (frame["success"] == 1).all() and (frame["turns"] == len(texts) + 1).all()
    assert (frame["invalid_calls"] == 2 * len(texts)).all()
    told = [m["content"] for m in lines(output)[1]["messages"] if m["role"] == "tool"]
    assert "Unknown tool 'no such tool!'. Tools: say." in told


@every_protocol
async def test_silence_and_words_alone_are_turns(protocol, tmp_path):
    def play(heard, turn):
        return [("", []), ("Hm.", []), ("", [("say", '{"text": "stop"}')])][turn]

    async with ApiServer(play) as server:
        frame = await evaluate(
            config(server, {"protocol": protocol}, samples=1), tmp_path / "x.parquet"
        )
    assert server.problems == [] and (frame["success"] == 1).all()
    assert (frame["invalid_calls"] == 2).all()


@pytest.mark.parametrize("protocol", ["openai-responses", "anthropic"])
async def test_thinking_goes_back_to_the_model_that_thought_it(protocol, tmp_path):
    async with ApiServer() as server:
        settings = config(server, {"protocol": protocol}, samples=1, evaluation={"concurrency": 1})
        await evaluate(settings, tmp_path / "x.parquet")
    _, _, second = server.requests[1]
    if protocol == "anthropic":
        assert second["messages"][1]["content"][0]["signature"] == "signed 0"
    else:
        assert second["input"][1]["encrypted_content"] == "c2VjcmV0"
        assert [item.get("type") for item in second["input"]] == [
            None, "reasoning", None, "function_call", "function_call_output",
        ]  # fmt: skip


async def test_models_take_turns_by_seed_and_each_sees_only_its_own_thinking(tmp_path):
    """Cross-policy sampling: three protocols in one episode."""
    words = [*"abcdefgh", "stop"]

    def play(heard, turn):
        return "", [("say", json.dumps({"text": words[turn]}))]

    def who(output):
        return [
            (record["key"], [m["by"] for m in record["messages"] if m["role"] == "assistant"])
            for record in sorted(lines(output)[1:], key=lambda r: r["key"])
        ]

    models = [{"protocol": p, "model": p, "weight": w} for p, w in zip(PROTOCOLS, (1, 1, 2), strict=True)]  # fmt: skip
    outputs = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for output, concurrency in zip(outputs, (1, 30), strict=True):
        async with ApiServer(play) as server:
            settings = config(
                server, *models, samples=20, evaluation={"concurrency": concurrency},
                echo={"factory": "tests.integration.test_api_models:LongEcho"},
            )  # fmt: skip
            frame = await evaluate(settings, output, ("m0", "m1", "m2"))
        assert server.problems == []
        assert (frame["success"] == 1).all()
    assert who(outputs[0]) == who(outputs[1])
    spoke = pd.Series([by for _, turns in who(outputs[0]) for by in turns])
    shares = spoke.value_counts(normalize=True)
    assert len(spoke) == 40 * 9
    # 360 draws: three standard errors are 0.069 and 0.079.
    assert abs(shares["m0"] - 0.25) < 0.07 and abs(shares["m2"] - 0.5) < 0.08
    for path, _, body in server.requests:
        for message in body["messages"] if path == "messages" else ():
            thought = [b for b in message["content"] if b["type"] == "thinking"]
            assert len(thought) <= 1
    account = provenance(outputs[0])["models"]
    assert sum(model["answers"] for model in account.values()) == 360


async def test_an_evaluation_goes_on_where_it_was_stopped(tmp_path):
    output = tmp_path / "gpt.parquet"
    async with ApiServer() as server:
        settings = config(
            server, {"protocol": "openai-chat"}, samples=10, evaluation={"concurrency": 4}
        )
        stopped = asyncio.create_task(evaluate(settings, output))
        await server.until(lambda: len(server.requests) >= 13)
        server.open.clear()  # what is under way now never ends
        stopped.cancel()
        await asyncio.gather(stopped, return_exceptions=True)
        done = [record for record in lines(output)[1:] if "key" in record]
        assert 1 <= len(done) < 20
        journal_path(output).open("ab").write(b'{"key": ["echo", "st')  # as a kill leaves it
        server.open.set()
        server.requests.clear()
        frame = await evaluate(settings, output)
        assert len(server.requests) == 2 * (20 - len(done))
        assert len(frame) == 20 and (frame["success"] == 1).all()
        whole = await evaluate(settings, tmp_path / "unbroken.parquet")
        pd.testing.assert_frame_equal(frame, whole)


async def test_a_journal_of_another_evaluation_is_refused_and_more_samples_are_not(tmp_path):
    output = tmp_path / "gpt.parquet"
    async with ApiServer() as server:
        await evaluate(config(server, {"protocol": "openai-chat"}, samples=1), output)
        more = {"protocol": "openai-chat", "concurrency": 2, "timeout": 99, "budget": 5}
        assert len(await evaluate(config(server, more, samples=2), output)) == 4
        assert len(server.requests) == 8
        other = {"protocol": "openai-chat", "max_output_tokens": 7}
        with pytest.raises(StateError, match=r"belongs to another evaluation: models\.m0 was"):
            await evaluate(config(server, other), output)


async def test_nothing_but_failures_and_no_usage_at_all_is_still_a_table(tmp_path):
    """Columns without any value are numbers, and no episode counts as lost."""
    async with ApiServer() as server:
        model = {"protocol": "openai-chat", "attempts": 1}
        settings = config(server, model, samples=2, evaluation={"concurrency": 1})
        server.faults.extend(["no-usage", "422"] * 4)
        frame = await evaluate(settings, tmp_path / "x.parquet")
    assert frame["reward"].isna().all() and frame["tokens"].isna().all()
    assert frame.dtypes[["reward", "success", "tokens"]].eq("float64").all()
    table = main_table(frame)
    assert table["failures"].tolist() == [2, 2, 2, 2]


async def test_how_far_it_is(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    async with ApiServer() as server:
        settings = config(
            server, {"protocol": "openai-chat"}, samples=20, evaluation={"concurrency": 1}
        )
        await evaluate(settings, tmp_path / "x.parquet")
    said = [r.getMessage() for r in caplog.records if "episodes, 0 failed" in r.getMessage()]
    assert len(said) == 20
    assert said[0] == "gpt: 2 of 40 episodes, 0 failed, 0.00 US dollars"
    assert said[-1] == "gpt: 40 of 40 episodes, 0 failed, 0.01 US dollars"


async def test_episodes_may_live_with_the_workers_of_a_controller(tmp_path):
    frames, tasks = [], []

    def task():
        tasks.append(EchoTask())
        return tasks[-1]

    async with cluster(task, workers=2) as (controller, _), ApiServer() as server:
        local = config(server, {"protocol": "anthropic"}, samples=5)
        hosting = local.hosting.model_copy(update={"controller": f"{controller.url}/api"})
        for n, settings in enumerate((local, local.model_copy(update={"hosting": hosting}))):
            frames.append(await evaluate(settings, tmp_path / f"{n}.parquet"))
    assert server.problems == [] and sum(len(task.started) for task in tasks) == 10
    pd.testing.assert_frame_equal(*frames)


async def test_one_evaluation_is_one_model(tmp_path):
    """Invariant 12: an alias that moves on."""
    output = tmp_path / "gpt.parquet"
    async with ApiServer() as server:
        server.served = "gpt-2026-01-01"
        await evaluate(config(server, {"protocol": "anthropic"}, samples=1), output)
        server.served = "gpt-2026-02-02"
        with pytest.raises(ConfigError, match="by 'gpt-2026-01-01' and now by 'gpt-2026-02-02'"):
            await evaluate(config(server, {"protocol": "anthropic"}, samples=2), output)


async def test_the_budget_ends_an_evaluation_and_counts_earlier_starts(tmp_path):
    output = tmp_path / "gpt.parquet"
    one = USES["openai-chat"] / 1e6
    async with ApiServer() as server:
        for budget, answers in ((2.5 * one, 3), (5 * one, 5)):
            model = {"protocol": "openai-chat", "budget": budget}
            settings = config(server, model, samples=20, evaluation={"concurrency": 1})
            with pytest.raises(ConfigError, match=r"models\.m0\.budget.*are spent"):
                await evaluate(settings, output)
            assert len(server.requests) == answers


async def test_a_budget_that_nobody_can_keep_is_not_kept_silently(tmp_path):
    output = tmp_path / "gpt.parquet"
    async with ApiServer() as server:
        server.faults.append("no-usage")
        model = {"protocol": "anthropic", "budget": 9}
        settings = config(server, model, evaluation={"concurrency": 1})
        with pytest.raises(ConfigError, match=r"models\.m0\.budget': 9 US dollars cannot be kept"):
            await evaluate(settings, output)
        assert len(server.requests) == 1
        frame = await evaluate(config(server, {"protocol": "anthropic"}), output)
        assert (frame["success"] == 1).all()


async def test_no_more_requests_at_once_than_allowed(tmp_path):
    async with ApiServer() as server:
        server.open.clear()
        settings = config(
            server, {"protocol": "openai-chat", "concurrency": 3}, samples=10,
            evaluation={"concurrency": 20},
        )  # fmt: skip
        running = asyncio.create_task(evaluate(settings, tmp_path / "x.parquet"))
        await server.until(lambda: server.at_once == 3)
        server.open.set()
        await running
    assert server.most_at_once == 3


async def test_a_model_without_temperature_plays_sampled_episodes_only(tmp_path):
    async with ApiServer() as server:
        model = {
            "protocol": "openai-responses",
            "takes_temperature": False,
            "parameters": {"reasoning": {"effort": "low"}},
        }
        frame = await evaluate(config(server, model, samples=2), tmp_path / "x.parquet")
    assert frame["mode"].tolist() == ["sampled", "sampled"]
    for _, _, body in server.requests:
        assert "temperature" not in body and body["reasoning"] == {"effort": "low"}


@pytest.mark.parametrize(
    ("models", "words"),
    [(["m7"], "--model 'm7': not in the config; it has m0"), (["m0", "m0"], "'m0': given twice")],
)
async def test_wrong_names_are_refused(models, words, tmp_path):
    async with ApiServer() as server:
        with pytest.raises(ConfigError, match=words):
            await evaluate(
                config(server, {"protocol": "anthropic"}), tmp_path / "x.parquet", models
            )


def test_seeds_go_to_servers_that_draw_by_them(tmp_path):
    async def once(output):
        async with ApiServer() as server:
            model = {"protocol": "openai-chat", "takes_seed": True}
            await evaluate(config(server, model, samples=2), output)
            return sorted(body["seed"] for _, _, body in server.requests)

    first, again = (asyncio.run(once(tmp_path / name)) for name in ("a.parquet", "b.parquet"))
    assert first == again and len(set(first)) == 4  # sampled and greedy share their seeds


def test_the_reward_of_a_full_context_is_that_of_rollouts():
    from agentrl.evaluation.api.episode import CONTEXT_LIMIT_REWARD
    from agentrl.rollout import agent_loop

    assert CONTEXT_LIMIT_REWARD == agent_loop.CONTEXT_LIMIT_REWARD
    assert api_run.SAMPLED == "sampled"


async def test_the_command_killed_with_9_goes_on(tmp_path):
    """`agentrl evaluate --model`, in processes of its own, with the key in their environment."""
    settings = tmp_path / "settings.yaml"
    output = tmp_path / "gpt.parquet"

    async def start():
        return await asyncio.create_subprocess_exec(
            Path(sys.executable).with_name("agentrl"), "evaluate", "--config", settings, "--name", "gpt",
            "--seed", "0", "--output", output, "--model", "m0",
            env={**os.environ, "TEST_KEY": KEY, "PYTHONPATH": str(ROOT)},
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip

    async with ApiServer() as server:
        model = {"protocol": "openai-chat"}
        chosen = config(server, model, samples=10, evaluation={"concurrency": 2})
        settings.write_text(to_yaml(chosen.model_dump(mode="json")))
        first = await start()
        ended = asyncio.create_task(first.wait())
        await asyncio.wait(
            [ended, asyncio.create_task(server.until(lambda: len(server.requests) >= 9))],
            return_when=asyncio.FIRST_COMPLETED,
        )
        assert not ended.done(), await first.communicate()
        server.open.clear()
        first.kill()
        await first.communicate()
        done = len(lines(output)) - 1
        assert done >= 2
        server.open.set()
        server.requests.clear()
        second = await start()
        _, said = await second.communicate()
        assert second.returncode == 0, said
        # Two episodes were under way; their requests are asked again.
        assert len(server.requests) == 2 * (20 - done)
    assert len(read_episodes([output])) == 20


def LongEcho(config, data_root):
    """The echo task with room for many turns."""
    return EchoTask(config, data_root, max_turns=12)
