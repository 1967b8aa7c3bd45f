"""The vLLM engine against a scripted server: versions, salts, retries, and every row of the fault table."""

import asyncio
from contextlib import AsyncExitStack

import pytest
import torch
from safetensors.torch import save_file

from agentrl.config.load import resolve
from agentrl.config.playing import VllmConfig
from agentrl.config.stages import stage_settings
from agentrl.errors import ConfigError, InfrastructureError, StateError
from agentrl.rollout.cross_policy import PolicyPool
from agentrl.rollout.engine import Completion, Sampling
from agentrl.rollout.vllm_engine import Replica, VllmEngine
from agentrl.rollout.vllm_process import VllmProcess, command_line
from agentrl.rollout.vllm_server import VllmServer
from tests.vllm_script import ScriptedVllm

FOUR = Sampling(1.0, 4, (), 7)


def weights(path, value, version=None):
    metadata = {} if version is None else {"version": str(version)}
    save_file({"w": torch.full((2,), float(value))}, path, metadata=metadata)
    return path


@pytest.fixture
def policy(tmp_path):
    folder = tmp_path / "policy"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    weights(folder / "model.safetensors", 0)
    return folder


class Restarts:
    """A `Process` whose restart is the test's."""

    def __init__(self, restarted):
        self.restarted, self.folders, self.closed = restarted, [], False

    async def restart(self, folder):
        self.folders.append(folder)
        await self.restarted(folder)

    async def close(self):
        self.closed = True


class Served:
    """`async with`: an engine over scripted servers, one a dictionary of options."""

    def __init__(self, policy, *servers, process=None):
        self.policy, self.options = policy, servers or ({},)
        self.process = process

    async def __aenter__(self):
        self.stack = AsyncExitStack()
        scratch = self.policy.parent / "scratch"
        self.servers = [
            await self.stack.enter_async_context(ScriptedVllm(self.policy, **options))
            for options in self.options
        ]
        self.replicas = [Replica(VllmServer(server.url), self.process) for server in self.servers]
        self.engine = await VllmEngine.start(
            self.replicas, self.policy, scratch, max_tokens=64, repair_seconds=0.01
        )
        self.stack.push_async_callback(self.engine.close)
        return self

    async def __aexit__(self, *_):
        await self.stack.aclose()


async def test_ids_go_in_and_out_with_log_probabilities_and_versions(policy):
    async with Served(policy) as served:
        done = await served.engine.generate([5, 10], Sampling(0.7, 6, (13,), 1), session=1)
        [request] = served.servers[0].requests
    assert (done.token_ids, done.finish_reason) == ([11, 12, 13], "stop")
    assert done.logprobs == [-0.011, -0.012, -0.013]
    assert done.policy_version == [0, 0, 0]
    assert request["prompt"] == [5, 10] and request["temperature"] == 0.7
    assert request["cache_salt"] == "current-0" and request["ignore_eos"]


async def test_limits_and_partial_completions(policy):
    async with Served(policy) as served:
        before = Completion([11, 12], [-0.5, -0.5], [3, 3], "length")
        done = await served.engine.generate([10], FOUR, session=1, partial=before)
        full = await served.engine.generate(list(range(62)), FOUR, session=2)
        # What is over already asks no server.
        over = Completion([1, 2, 3, 4], [0.0] * 4, [0] * 4, "length")
        assert (await served.engine.generate([9], FOUR, session=3, partial=over)).token_ids == [
            1,
            2,
            3,
            4,
        ]
        assert len(served.servers[0].requests) == 2
    assert done.token_ids == [11, 12, 13, 14] and done.policy_version == [3, 3, 0, 0]
    assert before.token_ids == [11, 12]
    assert full.token_ids == [62, 63] and full.finish_reason == "length"


async def test_a_completion_survives_an_update_under_two_versions_and_two_salts(policy, tmp_path):
    async with Served(policy, {"gate": True}, {"gate": True}) as served:
        first, _ = served.servers
        jobs = [
            asyncio.create_task(served.engine.generate([10 * n], FOUR, session=n)) for n in (1, 2)
        ]
        for server in served.servers:
            server.steps.release()
        while not all((p := served.engine.partial(n)) and p.token_ids for n in (1, 2)):  # noqa: ASYNC110
            await asyncio.sleep(0)
        held = served.engine.digest
        await served.engine.load_weights(1, weights(tmp_path / "w1.safetensors", 1, 1))
        assert served.engine.version == 1 and served.engine.digest != held
        for server in served.servers:
            for _ in range(4):
                server.steps.release()
        done = await asyncio.gather(*jobs)
        assert [r["cache_salt"] for r in first.requests] == ["current-0", "current-1"]
        assert first.requests[1]["prompt"] == [10, 11] and first.requests[1]["max_tokens"] == 3
        assert first.requests[0]["seed"] != first.requests[1]["seed"]
        assert first.paths.index("/pause") < first.paths.index("/collective_rpc")
        assert served.engine.statistics.continued == 2 and served.engine.statistics.retries == 0
    assert [one.token_ids for one in done] == [[11, 12, 13, 14], [21, 22, 23, 24]]
    assert [one.policy_version for one in done] == [[0, 1, 1, 1]] * 2


async def test_a_session_stays_where_its_prefix_is(policy):
    async with Served(policy, {}, {}) as served:
        for prompt in ([10], [10, 11, 12], [10, 11, 12, 13, 14]):
            await served.engine.generate(prompt, FOUR, session=1)
        assert sorted(len(server.requests) for server in served.servers) == [0, 3]
        served.engine.release(1)


async def test_a_released_session_is_cancelled_at_the_server_too(policy):
    async with Served(policy, {"gate": True}) as served:
        [server] = served.servers
        job = asyncio.create_task(served.engine.generate([10], FOUR, session=1))
        await server.started.wait()
        served.engine.release(1)
        served.engine.release(1)
        assert (await job).finish_reason == "cancelled"
        while server.running:  # noqa: ASYNC110
            await asyncio.sleep(0)


# -- the fault table ----------------------------------------------------------------------------


async def test_a_replica_killed_in_the_middle_loses_no_token(policy):
    async with Served(policy, {"die_after": 2}, {}) as served:
        dead, other = served.servers
        done = await served.engine.generate([10], FOUR, session=1)
        assert done.token_ids == [11, 12, 13, 14]
        assert other.requests[0]["prompt"] == [10, 11, 12]
        assert served.engine.statistics.retries == 1
        # Routed around from then on.
        await served.engine.generate([10], FOUR, session=2)
        assert len(dead.requests) == 1


async def test_a_replica_of_ours_is_restarted_with_the_newest_weights(policy, tmp_path):
    async def back(folder):
        served.servers[0].well, served.servers[0].die_after = True, None

    process = Restarts(back)
    async with Served(policy, process=process) as served:
        await served.engine.load_weights(1, weights(tmp_path / "w1.safetensors", 1, 1))
        served.servers[0].die_after = 1
        done = await served.engine.generate([10], FOUR, session=1)
        assert done.token_ids == [11, 12, 13, 14] and done.policy_version == [1] * 4
        assert [folder.name for folder in process.folders] == ["current-000001"]
        assert served.engine.statistics.restarts == 1
    assert process.closed


async def test_a_hung_server_is_left_after_its_time(policy):
    async with Served(policy, {"hang_after": 1}, {}) as served:
        served.replicas[0].server.silent_after = 0.2
        done = await served.engine.generate([10], FOUR, session=1)
        assert done.token_ids == [11, 12, 13, 14]
        assert "silent for 0.2 s" in served.engine.statistics.silent[0]


async def test_out_of_kv_space_is_tried_twice_then_an_infrastructure_failure(policy):
    async with Served(policy) as served:
        served.servers[0].status = 503
        with pytest.raises(InfrastructureError, match="503, no KV space"):
            await served.engine.generate([10], FOUR, session=1)
        assert len(served.servers[0].requests) == 2
        # A request that the server finds wrong is wrong everywhere.
        served.servers[0].status = 400
        with pytest.raises(InfrastructureError, match="400"):
            await served.engine.generate([10], FOUR, session=2)
        assert len(served.servers[0].requests) == 3
        served.servers[0].status = 200
        assert (await served.engine.generate([10], FOUR, session=3)).finish_reason == "length"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "gpt"}, "serves gpt, not 'policy'"),
        ({"room": 32}, "has room for 32 tokens, less than rollout.max_total_tokens"),
    ],
)
async def test_a_server_with_the_wrong_model_is_refused_at_the_start(policy, options, message):
    with pytest.raises(ConfigError, match=message):
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(ScriptedVllm(policy, **options))
            client = VllmServer(server.url)
            stack.push_async_callback(client.close)
            await VllmEngine.start([Replica(client)], policy, policy.parent, max_tokens=64)


async def test_damaged_and_foreign_weights_never_reach_a_server(policy, tmp_path):
    good = weights(tmp_path / "good.safetensors", 1, 1)
    (tmp_path / "cut.safetensors").write_bytes(good.read_bytes()[:-3])
    save_file({"w": torch.zeros(3)}, tmp_path / "other.safetensors")
    async with Served(policy) as served:
        for name, error in [("cut", StateError), ("other", StateError), ("gone", StateError)]:
            with pytest.raises(error):
                await served.engine.load_weights(1, tmp_path / f"{name}.safetensors")
        with pytest.raises(InfrastructureError, match="hold version 1, not 2"):
            await served.engine.load_weights(2, good)
        assert "/pause" not in served.servers[0].paths and served.engine.version == 0
        assert (await served.engine.generate([10], FOUR, session=1)).policy_version == [0] * 4


async def test_an_update_that_a_server_ignores_is_noticed(policy, tmp_path):
    async with Served(policy, {}, {}) as served:
        served.servers[1].ignores_reload = True
        with pytest.raises(InfrastructureError, match="hold different weights"):
            await served.engine.load_weights(1, weights(tmp_path / "w1.safetensors", 1, 1))
    async with Served(policy) as served:
        pool = PolicyPool({"current": served.engine})
        await pool.load_weights(1, weights(tmp_path / "w1.safetensors", 1, 1))
        served.servers[0].ignores_reload = True
        with pytest.raises(InfrastructureError, match="do not agree"):
            await pool.load_weights(2, weights(tmp_path / "w2.safetensors", 2, 2))


# -- processes and settings ---------------------------------------------------------------------


async def test_a_missing_environment_and_a_server_that_ends_are_one_line(policy, tmp_path):
    options = {"dtype": "fp32", "max_tokens": 64, "concurrency": 2, "log": tmp_path / "vllm.log"}
    with pytest.raises(ConfigError, match="agentrl serve --install"):
        await VllmProcess(VllmConfig(python=tmp_path / "bin/python"), **options).start(policy)
    fails = tmp_path / "python"
    fails.write_text("#!/bin/sh\necho 'ValueError: no such model' >&2\nexit 3\n")
    fails.chmod(0o755)
    process = VllmProcess(VllmConfig(python=fails), **options)
    with pytest.raises(InfrastructureError, match="ended with 3: ValueError: no such model"):
        await process.start(policy)
    assert process.pid is None


def test_what_a_server_is_started_with(policy):
    given = command_line(
        VllmConfig(arguments=("--enforce-eager",)),
        policy, port=1, dtype="bf16", max_tokens=768, concurrency=64,
    )  # fmt: skip
    assert given[given.index("--dtype") + 1] == "bfloat16"
    assert given[given.index("--logprobs-mode") + 1] == "processed_logprobs"
    assert given[-1] == "--enforce-eager"


def test_settings(tmp_path):
    tasks = {"echo": {"factory": "tests.fakes:EchoTask"}}
    with pytest.raises(ConfigError, match=r"pipeline\.schedule: 'deterministic' needs an engine"):
        resolve({"tasks": tasks, "rollout": {"engine": "vllm"}})
    served = {
        "tasks": tasks, "rollout": {"engine": "vllm"}, "pipeline": {"schedule": "eager"},
        "training": {"start": "base"},
    }  # fmt: skip
    assert stage_settings(resolve(served), "train-multi-task")["rollout"]["engine"] == "vllm"
    assert stage_settings(resolve(served), "evaluate")["rollout"]["engine"] == "vllm"
    plain = resolve({"tasks": tasks, "training": {"start": "base"}})
    for stage in ("train-multi-task", "evaluate"):
        assert not {"engine", "vllm"} & stage_settings(plain, stage)["rollout"].keys()
