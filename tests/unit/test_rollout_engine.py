"""The embedded engine against plain forward passes: exactness, caches, weights, order, clean-up."""

import asyncio
import dataclasses

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from agentrl.config.models import PolicyConfig
from agentrl.errors import ConfigError, InfrastructureError, StateError
from agentrl.rollout import decoder as decoders
from agentrl.rollout.engine import Completion, Sampling
from agentrl.rollout.policy import create_tiny_policy, load_policy
from agentrl.rollout.sampling import draw, uniforms
from agentrl.rollout.transformers_engine import TransformersEngine
from tests.fakes import SAY

TINY = PolicyConfig(
    vocab_size=512, hidden_size=32, layers=2, heads=4, kv_heads=2, intermediate_size=48,
    max_positions=128,
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("policy") / "tiny"
    create_tiny_policy(TINY, [" ".join(f"w{i}" for i in range(300))], [SAY], 1, path)
    # Untrained weights give flat distributions; sharper ones make a wrong key or value show.
    weights = {
        n: t * 4 if "proj" in n else t for n, t in load_file(path / "model.safetensors").items()
    }
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    return path


@pytest.fixture(scope="module")
def model(folder):
    return load_policy(folder).model


@pytest.fixture(scope="module")
def other(folder, tmp_path_factory):
    """Other weights of the same shape, and a model that holds them."""
    path = tmp_path_factory.mktemp("weights") / "weights-1.safetensors"
    weights = load_file(folder / "model.safetensors")
    generator = torch.Generator().manual_seed(5)
    changed = {n: t + 0.1 * torch.randn(t.shape, generator=generator) for n, t in weights.items()}
    save_file(changed, path, metadata={"version": "1"})
    model = load_policy(folder).model
    model.load_state_dict(changed, strict=False)
    return path, model


def engine(folder, **options):
    return TransformersEngine(folder, **{"slots": 4, "max_tokens": 100, **options})


def logprobs(model, ids, temperature=1.0):
    """Log-probability of each token after the first, by one plain forward pass."""
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, :-1]
    chosen = (logits / temperature).log_softmax(-1).gather(1, torch.tensor(ids[1:]).unsqueeze(1))
    return chosen.squeeze(1).numpy()


async def drive(engine, *coroutines):
    """Step the engine whenever every session waits for it; the results in order."""
    tasks = [asyncio.create_task(c) for c in coroutines]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if engine.pending:
            engine.step()
    return await asyncio.gather(*tasks)


async def talk(engine, session, turns=3, *, temperature=1.0, on_turn=None):
    """A session of ragged turns: its ids, and (start, completion) of every turn."""
    numbers = np.random.default_rng(session)
    ids = numbers.integers(5, 250, 6 + session % 5).tolist()
    said = []
    for turn in range(turns):
        sampling = Sampling(temperature, 3 + (session + turn) % 4, (1,), 1000 + session)
        completion = await engine.generate(ids, sampling, session=session)
        said.append((len(ids), completion))
        ids = (
            ids + completion.token_ids + numbers.integers(5, 250, 1 + (session * turn) % 6).tolist()
        )
        if on_turn is not None:
            await on_turn(turn)
    return ids, said


def assert_exact(model, ids, said, temperature=1.0, tolerance=1e-5):
    plain = logprobs(model, ids, temperature)
    for start, completion in said:
        span = plain[start - 1 : start - 1 + len(completion.token_ids)]
        np.testing.assert_allclose(completion.logprobs, span, atol=tolerance)


@pytest.mark.parametrize("kind", ["own", "transformers"])
@pytest.mark.parametrize("slots, temperature", [(8, 1.0), (3, 0.8)])
async def test_ragged_sessions_equal_plain_forward_passes(folder, model, kind, slots, temperature):
    """With 3 slots for 7 sessions every turn is computed after an eviction. T = 0.8: pitfall 22."""
    served = engine(folder, slots=slots, decoder=kind)
    results = await drive(served, *(talk(served, s, temperature=temperature) for s in range(1, 8)))
    for ids, said in results:
        assert_exact(model, ids, said, temperature)
    if temperature != 1.0:
        with pytest.raises(AssertionError):  # the self-check must notice a wrong temperature
            assert_exact(model, *results[0], 1.0)


COMMON = {
    "vocab_size": 300, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 16,
}  # fmt: skip


@pytest.mark.parametrize(
    "kind, options, decoder",
    [
        ("qwen2", {"tie_word_embeddings": False}, "LlamaDecoder"),
        (
            "llama",
            {"attention_bias": True, "head_dim": 16, "rope_parameters": LLAMA3},
            "LlamaDecoder",
        ),
        ("llama", {"mlp_bias": True}, "ModelDecoder"),
        ("qwen3", {"head_dim": 16}, "ModelDecoder"),
        ("mistral", {"sliding_window": None}, "ModelDecoder"),
        ("gpt_neox", {"num_key_value_heads": None}, "ModelDecoder"),
    ],
)
async def test_other_architectures(tmp_path, kind, options, decoder):
    config = AutoConfig.for_model(kind, **{**COMMON, **options})
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = AutoModelForCausalLM.from_config(config).eval()
        for name, value in model.named_parameters():
            if name.endswith("bias"):
                torch.nn.init.normal_(value, std=0.5)
    model.save_pretrained(tmp_path)
    served = engine(tmp_path)
    assert served.decoder == decoder
    results = await drive(served, *(talk(served, s) for s in range(1, 6)))
    for ids, said in results:
        assert_exact(model, ids, said)


async def test_no_token_is_computed_twice(folder):
    served = engine(folder, slots=8)
    results = await drive(served, *(talk(served, s) for s in range(1, 8)))
    needed = sum(said[-1][0] + len(said[-1][1].token_ids) - 1 for _, said in results)
    assert served.statistics.computed == needed
    assert served.statistics.sampled == sum(
        len(c.token_ids) for _, said in results for _, c in said
    )


async def test_own_and_library_decoder_sample_the_same(folder):
    runs = []
    for kind in ("own", "transformers"):
        served = engine(folder, decoder=kind)
        assert served.decoder == {"own": "LlamaDecoder", "transformers": "ModelDecoder"}[kind]
        runs.append(await drive(served, *(talk(served, s) for s in range(1, 5))))
    assert [ids for ids, _ in runs[0]] == [ids for ids, _ in runs[1]]


async def test_the_sampled_ids_do_not_depend_on_the_batch(folder):
    crowd = engine(folder, slots=8)
    together = await drive(crowd, *(talk(crowd, s) for s in range(1, 8)))
    for session in (1, 4, 7):
        alone = engine(folder, slots=1)
        ((ids, _),) = await drive(alone, talk(alone, session))
        assert ids == together[session - 1][0]


async def test_requests_are_served_in_the_order_of_sessions_not_of_arrival(folder):
    """Same requests, same results, bit by bit (invariant 8)."""
    runs = []
    for order in ([1, 2, 3, 4, 5], [4, 1, 5, 3, 2]):
        served = engine(folder, slots=3)
        results = await drive(served, *(talk(served, s) for s in order))
        runs.append({s: said for s, (_, said) in zip(order, results, strict=True)})
    assert runs[0] == runs[1]


async def test_stop_tokens_are_part_of_the_completion_and_limits_are_kept(folder):
    served = engine(folder, max_tokens=20)
    every = tuple(range(512))
    (got,) = await drive(served, served.generate([5, 6], Sampling(1.0, 9, every), session=1))
    assert (len(got.token_ids), got.finish_reason) == (1, "stop")
    (got,) = await drive(served, served.generate([5, 6], Sampling(1.0, 9), session=2))
    assert (len(got.token_ids), got.finish_reason) == (9, "length")
    (got,) = await drive(served, served.generate([5] * 17, Sampling(1.0, 9), session=3))
    assert (len(got.token_ids), got.finish_reason) == (3, "length")  # the slot is full
    got = await served.generate([5] * 20, Sampling(1.0, 9), session=4)
    assert (got.token_ids, got.finish_reason) == ([], "length")


async def test_greedy_takes_the_largest_logit(folder, model):
    served = engine(folder)
    (got,) = await drive(served, served.generate([5, 6, 7], Sampling(0.0, 6), session=1))
    ids = [5, 6, 7]
    for token in got.token_ids:
        with torch.no_grad():
            assert token == int(model(torch.tensor([ids])).logits[0, -1].argmax())
        ids.append(token)
    assert_exact(model, ids, [(3, got)])


async def test_a_partial_completion_goes_on_as_if_it_had_never_been_cut(folder):
    sampling = Sampling(1.0, 12, (), 77)
    whole_engine = engine(folder)
    (whole,) = await drive(whole_engine, whole_engine.generate([9, 8], sampling, session=1))
    for cut in (1, 5, 11):
        first = Completion(whole.token_ids[:cut], whole.logprobs[:cut], [4] * cut, "length")
        fresh = engine(folder, version=6)
        (got,) = await drive(fresh, fresh.generate([9, 8], sampling, session=3, partial=first))
        assert got.token_ids == whole.token_ids
        np.testing.assert_allclose(got.logprobs, whole.logprobs, atol=1e-5)
        assert got.policy_version == [4] * cut + [6] * (12 - cut)
    assert await fresh.generate([9, 8], sampling, session=3, partial=whole) == whole


async def test_weights_that_arrive_in_between_leave_no_trace_of_the_old(folder, model, other):
    """Pitfalls 25, 27 and 32: the request completes, its tokens carry two versions, and what
    comes after the update is computed by the new weights from the first token of the prompt on."""
    path, new_model = other
    served = engine(folder)
    prompt, sampling = [7, 9, 11, 13], Sampling(1.0, 10, (), 3)
    task = asyncio.create_task(served.generate(prompt, sampling, session=1))
    await asyncio.sleep(0)
    for _ in range(4):
        served.step()
    assert served.partial(1).policy_version == [0] * 4
    digest = served.digest
    await served.load_weights(1, path)
    assert served.version == 1 and served.digest != digest
    while not task.done():
        served.step()
        await asyncio.sleep(0)
    got = await task
    assert got.policy_version == [0] * 4 + [1] * 6
    ids = prompt + got.token_ids
    np.testing.assert_allclose(got.logprobs[:4], logprobs(model, ids)[3:7], atol=1e-5)
    np.testing.assert_allclose(got.logprobs[4:], logprobs(new_model, ids)[7:], atol=1e-5)
    # a later turn of the same session finds nothing of the old weights either
    (later,) = await drive(served, served.generate([*ids, 20], sampling, session=1))
    np.testing.assert_allclose(
        later.logprobs, logprobs(new_model, [*ids, 20, *later.token_ids])[len(ids) :], atol=1e-5
    )


async def test_a_resumed_engine_is_the_unbroken_one_bit_by_bit(folder, other):
    """Invariant 9: after new weights, a fresh engine that gets the partial completions does
    exactly what the old one does."""
    path, _ = other
    old = engine(folder, slots=3)
    prompts = {s: [5 + s, 20, 30 + s][: 2 + s % 2] for s in range(1, 6)}
    sampling = {s: Sampling(1.0, 8 + s, (), 40 + s) for s in prompts}
    tasks = {
        s: asyncio.create_task(old.generate(p, sampling[s], session=s)) for s, p in prompts.items()
    }
    await asyncio.sleep(0)
    for _ in range(5):
        old.step()
    await old.load_weights(1, path)
    saved = {s: old.partial(s) for s in prompts}
    assert sorted(len(c.token_ids) for c in saved.values()) == [0, 0, 5, 5, 5]
    new = engine(folder, slots=3)
    await new.load_weights(1, path)
    again = {
        s: asyncio.create_task(new.generate(prompts[s], sampling[s], session=s, partial=saved[s]))
        for s in reversed(prompts)
    }
    await asyncio.sleep(0)
    while old.pending or new.pending:
        old.step(), new.step()
        await asyncio.sleep(0)
    for s in prompts:
        assert dataclasses.asdict(await tasks[s]) == dataclasses.asdict(await again[s])


async def test_dropping_caches_changes_no_token(folder):
    runs = []
    for drops in (False, True):
        served = engine(folder)

        async def on_turn(turn, served=served, drops=drops):
            if drops:
                served.drop_caches()

        runs.append(await drive(served, *(talk(served, s, on_turn=on_turn) for s in (1, 2, 3))))
    assert [ids for ids, _ in runs[0]] == [ids for ids, _ in runs[1]]


async def test_weights_of_another_model_or_a_damaged_file_are_refused(folder, other, tmp_path):
    served = engine(folder)
    digest = served.digest
    with pytest.raises(InfrastructureError, match="hold version 1, not 2"):
        await served.load_weights(2, other[0])
    tensors = load_file(other[0])
    wrong = tmp_path / "wrong.safetensors"
    save_file({**tensors, "model.norm.weight": torch.zeros(3)}, wrong)
    with pytest.raises(StateError, match=r"shape of 'model\.norm\.weight'"):
        await served.load_weights(1, wrong)
    save_file({n: t for n, t in tensors.items() if n != "model.norm.weight"}, wrong)
    with pytest.raises(StateError, match=r"lack of 'model\.norm\.weight'"):
        await served.load_weights(1, wrong)
    wrong.write_bytes(other[0].read_bytes()[:-100])
    with pytest.raises(StateError, match="cannot read the weights"):
        await served.load_weights(1, wrong)
    assert (served.version, served.digest) == (0, digest)


async def test_an_update_that_does_not_arrive_is_noticed(folder, other, monkeypatch):
    """Pitfall 26: what the engine holds is compared with what was sent."""
    served = engine(folder)
    held = served._decoder.tensors()
    monkeypatch.setattr(served._decoder, "tensors", lambda: {n: t.clone() for n, t in held.items()})
    with pytest.raises(InfrastructureError, match="does not hold"):
        await served.load_weights(1, other[0])


async def test_released_and_cancelled_requests_leave_nothing(folder):
    served = engine(folder, slots=2)
    tasks = [
        asyncio.create_task(served.generate([5, 6], Sampling(1.0, 50), session=s))
        for s in (1, 2, 3)
    ]
    await asyncio.sleep(0)
    served.step()
    served.release(1)
    served.release(1)
    assert (await tasks[0]).finish_reason == "cancelled"
    tasks[1].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[1]
    assert served.pending == 1 and served.partial(2) is None
    served.step()  # session 3 gets the slot that session 1 left
    assert len(served.partial(3).token_ids) == 1
    await served.close()
    with pytest.raises(InfrastructureError, match="closed"):
        await tasks[2]
    with pytest.raises(InfrastructureError, match="closed"):
        await served.generate([1], Sampling(), session=9)


async def test_the_driver_gives_what_lockstep_gives(folder):
    """`run` computes in a thread of its own; turns, weights and releases arrive in between."""
    stepped = engine(folder, slots=8)
    expected = await drive(stepped, *(talk(stepped, s) for s in range(1, 6)))
    served = engine(folder, slots=8)
    driver = asyncio.create_task(served.run())
    got = await asyncio.wait_for(
        asyncio.gather(*(talk(served, s) for s in range(1, 6))), timeout=30
    )
    assert [ids for ids, _ in got] == [ids for ids, _ in expected]
    with pytest.raises(RuntimeError, match="drives the engine"):
        served.step()
    driver.cancel()
    with pytest.raises(asyncio.CancelledError):
        await driver


async def test_the_driver_takes_weights_between_two_steps(folder, other):
    served = engine(folder, slots=8)
    driver = asyncio.create_task(served.run())
    talks = [asyncio.create_task(talk(served, s, turns=6)) for s in range(1, 6)]
    while served.statistics.sampled < 20:  # noqa: ASYNC110 (counts steps, not time)
        await asyncio.sleep(0)
    await served.load_weights(1, other[0])
    results = await asyncio.wait_for(asyncio.gather(*talks), timeout=30)
    versions = [v for _, said in results for _, c in said for v in c.policy_version]
    assert set(versions) == {0, 1}
    assert all(c.policy_version == sorted(c.policy_version) for _, said in results for _, c in said)
    driver.cancel()
    await asyncio.gather(driver, return_exceptions=True)


async def test_a_bug_in_a_step_fails_every_request_and_is_raised(folder, monkeypatch):
    for driven in (False, True):
        served = engine(folder)
        monkeypatch.setattr(served._decoder, "logits", lambda *_: 1 / 0)
        task = asyncio.create_task(served.generate([5], Sampling(), session=1))
        await asyncio.sleep(0)
        with pytest.raises(ZeroDivisionError):
            await served.run() if driven else served.step()
        with pytest.raises(InfrastructureError, match="the engine broke: ZeroDivisionError"):
            await task


def test_settings_that_do_not_fit_are_refused(folder, tmp_path):
    with pytest.raises(ConfigError, match=r"rollout\.max_total_tokens': 129 is more than .* 128"):
        engine(folder, max_tokens=129)
    with pytest.raises(StateError, match="cannot read the policy"):
        engine(tmp_path)


def test_a_decoder_that_is_not_exact_is_refused(folder, monkeypatch):
    monkeypatch.setattr(decoders.LlamaDecoder, "_rms_norm", lambda self, x, weight: x * 1.01)
    with pytest.raises(InfrastructureError, match=r"LlamaDecoder is off by .* cannot serve"):
        engine(folder, decoder="own")


async def test_bf16_stays_close(folder, model):
    served = engine(folder, dtype="bf16")
    ((ids, said),) = await drive(served, talk(served, 2))
    assert_exact(model, ids, said, tolerance=0.2)


def test_draws_follow_the_distribution():
    """Chi-square of 20,000 draws against exact probabilities, 99.9 % bound of 7 degrees."""
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, 0.5, 0.3, -2.0, 1.5])
    count = 20_000
    positions = np.arange(count)
    uniform = uniforms(np.full(count, 123, np.uint64), positions)
    ids, logps = draw(logits.repeat(count, 1), np.full(count, 0.7), uniform)
    exact = (logits / 0.7).softmax(0).numpy()
    observed = np.bincount(ids.numpy(), minlength=8)
    assert ((observed - count * exact) ** 2 / (count * exact)).sum() < 24.3
    np.testing.assert_allclose(logps.numpy(), np.log(exact)[ids.numpy()], atol=1e-6)


def test_uniforms_are_splitmix64():
    """Reference values of Java's SplittableRandom algorithm for seed 1234567 (Vigna's splitmix64.c)."""
    words = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    got = uniforms(np.full(3, 1234567, np.uint64), np.arange(3))
    assert got.tolist() == [(word >> 11) * 2.0**-53 for word in words]
    assert len({*uniforms(np.arange(1000, dtype=np.uint64), np.zeros(1000))}) == 1000
