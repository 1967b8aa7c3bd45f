"""Behaviour cloning on a toy task: what is learned, with which weight, and resuming."""

import asyncio
import json

import numpy as np
import pytest
import torch
from toy_task import TOOLS, WORDS, ToyTask
from training_toys import tiny_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from agentrl.config.load import resolve
from agentrl.config.models import TaskConfig
from agentrl.errors import ConfigError
from agentrl.rollout.policy import create_tiny_policy, load_policy
from agentrl.tasks.base import Sample
from agentrl.tasks.play import play_expert
from agentrl.training.batch import Row
from agentrl.training.cloning import Cloner
from agentrl.training.muon import Muon
from agentrl.training.schedule import schedule
from agentrl.training.warm_start import collect_expert_episodes, episode_row, run_warm_start

STAGES = [
    {"steps": 7, "learning_rate": 0.02, "warmup_steps": 2},
    {"steps": 6, "noise": {"toy": 0.5}, "learning_rate": 0.01, "warmup_steps": 0},
]


def config_of(stages=STAGES, **settings):
    return resolve(
        {
            "tasks": {"toy": {"factory": "toy_task:ToyTask"}},
            "policy": {
                "hidden_size": 32,
                "layers": 2,
                "intermediate_size": 64,
                "max_positions": 128,
            },
            "training": {"autocast": "none", "snapshot_every": 3},
            "warm_start": {"stages": stages, "episodes_per_step": {"toy": 6}, **settings},
        }
    )


@pytest.fixture(scope="module")
def task():
    return ToyTask(TaskConfig(), None)


@pytest.fixture(scope="module")
def policy_path(tmp_path_factory):
    out = tmp_path_factory.mktemp("policies") / "base"
    texts = [f"The word is {word}. Task: say the word. Right. Wrong. wall" for word in WORDS] * 3
    create_tiny_policy(config_of().policy, texts, TOOLS, 0, out)
    return out


def test_schedule_rises_stays_and_falls_to_zero():
    shape = {"steps": 10, "warmup_steps": 4, "decay_fraction": 0.4}
    expected = [0.25, 0.5, 0.75, 1, 1, 1, 1, 0.75, 0.5, 0.25]
    assert [schedule(step, **shape) for step in range(10)] == pytest.approx(expected)
    flat = {"steps": 3, "warmup_steps": 0, "decay_fraction": 0.0}
    assert [schedule(step, **flat) for step in range(3)] == [1, 1, 1]


def test_what_the_policy_would_sample_has_weight_one(task, policy_path):
    policy = load_policy(policy_path, TOOLS)
    played = asyncio.run(play_expert(task, Sample("toy", "train", 3), 0))
    row = episode_row(played, policy.renderer, task, 2, 0.25)
    assert row.task == 2 and row.weights[0] == 0
    assert set(row.weights[1:].tolist()) == {1.0, 0.25}
    own = [int(i) for i in row.token_ids[row.weights == 1]]
    text = policy.tokenizer.decode(own)
    word = task.word(Sample("toy", "train", 3))
    assert "look" in text and "say" in text and word in text
    stops = set(policy.renderer.get_stop_token_ids())
    assert sum(i in stops for i in own) == 2  # each action with its stop token
    assert row.token_ids[-1] in stops  # the reply to the last action is left out
    whole = policy.tokenizer.decode([int(i) for i in row.token_ids])
    assert f"The word is {word}." in whole and "Right" not in whole


def test_episodes_derive_from_seed_stage_task_and_counter(task):
    def collect(step, seed=0, stage=0, count=4, noise=0.0):
        episodes = asyncio.run(
            collect_expert_episodes(
                {"toy": task}, {"toy": "train"}, {"toy": count}, {"toy": noise}, seed, stage, step
            )
        )
        return [(e.sample, e.messages[-2].tool_calls[0].arguments) for e in episodes]

    assert collect(5) == collect(5)
    assert collect(0, count=8) == collect(0) + collect(1)
    assert collect(0) != collect(0, seed=1) and collect(0) != collect(0, stage=1)
    assert all(sample.split == "train" for sample, _ in collect(0))
    assert collect(0, noise=1.0) != collect(0)


def test_demonstrations_are_so_many_episodes_and_always_the_same(task):
    def collect(step, stage=0):
        episodes = asyncio.run(
            collect_expert_episodes(
                {"toy": task}, {"toy": "train"}, {"toy": 40}, {"toy": 0.5}, 0, stage, step, 6
            )
        )
        return [(e.sample, tuple(m.content for m in e.messages)) for e in episodes]

    seen = [pair for step in range(3) for pair in collect(step)] + collect(0, stage=1)
    assert {sample.index for sample, _ in seen} == set(range(6))
    assert len(set(seen)) == 6  # a sample is never played in two ways


def rows_of(sizes, seed=0):
    generator = np.random.default_rng(seed)
    rows = []
    for task, length in sizes:
        weights = generator.choice([0.0, 0.2, 1.0], length).astype(np.float32)
        weights[0], weights[-1] = 0.0, 1.0
        rows.append(Row(generator.integers(0, 61, length).astype(np.int32), weights, task))
    return rows


def gradient(rows, tasks, budget):
    """Of the loss that one step takes: the step itself is stopped before the optimizers."""
    cloner = Cloner(tiny_model(), config_of(max_tokens_per_microbatch=budget))
    losses = cloner.learn(rows, tasks, 1.0)  # no stage begun, so no optimizer moves
    return losses, {name: p.grad.clone() for name, p in cloner.model.named_parameters()}


def test_loss_is_a_mean_over_tokens_then_tasks_however_it_is_cut():
    rows = rows_of([(0, 30), (1, 5), (0, 12), (1, 70), (1, 9)])
    model = tiny_model()
    sums, weights = [0.0, 0.0], [0.0, 0.0]
    for row in rows:  # the definition, one token at a time
        table = torch.log_softmax(
            model(torch.tensor(row.token_ids[None].astype(np.int64))).logits[0], -1
        )
        for place in range(1, len(row.token_ids)):
            weight = float(row.weights[place])
            sums[row.task] = sums[row.task] - weight * table[place - 1, row.token_ids[place]]
            weights[row.task] += weight
    means = [s / w for s, w in zip(sums, weights, strict=True)]
    (sum(means) / 2).backward()
    for budget in (80, 4096):
        losses, got = gradient(rows, 2, budget)
        assert losses == pytest.approx([m.item() for m in means], abs=1e-5)
        for name, p in model.named_parameters():
            torch.testing.assert_close(got[name], p.grad, rtol=1e-4, atol=1e-6)


def test_muon_takes_the_hidden_matrices_and_adamw_the_rest():
    cloner = Cloner(tiny_model(), config_of())
    cloner.begin_stage(config_of().warm_start.stages[0])
    names = {id(p): name for name, p in cloner.model.named_parameters()}
    muon, adamw = (
        {names[id(p)] for group in optimizer.param_groups for p in group["params"]}
        for optimizer in cloner.optimizers
    )
    assert isinstance(cloner.optimizers[0], Muon)
    assert muon | adamw == set(names.values()) and not muon & adamw
    assert all("_proj" in name for name in muon) and len(muon) == 2 * 7
    assert "model.embed_tokens.weight" in adamw
    (group,) = cloner.optimizers[0].param_groups
    assert (group["lr"], group["momentum"], group["weight_decay"]) == (0.02, 0.95, 0.05)


def warm(config, policy_path, folder, **options):
    report = asyncio.run(
        run_warm_start(config, policy_path, folder / "out", 5, folder / "state", **options)
    )
    return report


def weights_of(folder):
    return (folder / "out" / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory, policy_path):
    folder = tmp_path_factory.mktemp("unbroken")
    records = []
    report = warm(config_of(), policy_path, folder, reporter=records.append)
    return folder, report, records


def test_result_is_a_policy_and_the_state_is_gone(unbroken):
    folder, report, records = unbroken
    assert report.finished and report.steps == 13 and report.loss == records[-1]["loss"]
    assert records[-1]["loss"] < records[0]["loss"] - 1
    assert 0 < report.expert_share < 1
    assert sorted(p.name for p in folder.iterdir()) == ["out"]
    history = (folder / "out" / "warm_start.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in history] == records
    assert [(r["stage"], r["step"]) for r in records] == [
        *((0, step) for step in range(7)),
        *((1, step) for step in range(6)),
    ]
    assert all(r["expert_reward/toy"] == 1 for r in records[:7])
    assert any(r["expert_reward/toy"] < 1 for r in records[7:])
    made = json.loads((folder / "out" / "provenance.json").read_text())
    assert {"commit", "settings", "versions", "machine"} <= set(made)
    policy = load_policy(folder / "out", TOOLS)
    assert policy.card.provenance["warm_start_steps"] == 13
    model = AutoModelForCausalLM.from_pretrained(folder / "out")
    tokenizer = AutoTokenizer.from_pretrained(folder / "out")
    ids = torch.tensor([tokenizer("Task: say the word.")["input_ids"]])
    assert torch.equal(model(ids).logits, policy.model(ids).logits)


@pytest.mark.parametrize("at", [2, 6, 9])
def test_broken_off_anywhere_it_ends_with_the_same_weights(unbroken, policy_path, tmp_path, at):
    class Killed(BaseException):
        pass

    def kill(record):
        if (record["stage"], record["step"]) == divmod(at, 7):
            raise Killed

    with pytest.raises(Killed):
        warm(config_of(), policy_path, tmp_path, reporter=kill)
    records = []
    report = warm(config_of(), policy_path, tmp_path, reporter=records.append)
    assert len(records) == 13 - at // 3 * 3  # from the last snapshot on
    assert report.steps == 13
    assert weights_of(tmp_path) == weights_of(unbroken[0])
    losses = [r["loss"] for r in unbroken[2]]
    assert [r["loss"] for r in records] == losses[-len(records) :]


def test_asked_to_stop_it_saves_and_goes_on_later(unbroken, policy_path, tmp_path):
    stop = asyncio.Event()
    report = warm(
        config_of(),
        policy_path,
        tmp_path,
        stop=stop,
        reporter=lambda record: record["step"] == 4 and stop.set(),
    )
    assert not report.finished and report.steps == 5
    assert not (tmp_path / "out").exists()
    report = warm(config_of(), policy_path, tmp_path)
    assert report.finished
    assert weights_of(tmp_path) == weights_of(unbroken[0])


def test_other_settings_start_afresh(policy_path, tmp_path):
    stop = asyncio.Event()
    stop.set()
    warm(config_of(), policy_path, tmp_path, stop=stop)
    records = []
    stages = [{"steps": 2}]
    warm(config_of(stages), policy_path, tmp_path, reporter=records.append)
    assert [r["step"] for r in records] == [0, 1]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"stages": []}, "warm_start.stages"),
        ({"episodes_per_step": {}}, "warm_start.episodes_per_step"),
        ({"episodes_per_step": {"other": 3}}, "task 'other' is not in tasks"),
        ({"max_tokens_per_microbatch": 5}, "warm_start.max_tokens_per_microbatch"),
    ],
)
def test_settings_that_cannot_work(policy_path, tmp_path, settings, words):
    settings = {"stages": STAGES, **settings}
    with pytest.raises(ConfigError, match=words) as error:
        warm(config_of(**settings), policy_path, tmp_path)
    assert "\n" not in str(error.value)
