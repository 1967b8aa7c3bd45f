"""Cutting a step into batches: the shift, the budget, the minibatches."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from training_toys import tiny_model

from agentrl.errors import ConfigError
from agentrl.training.batch import Row, collate, micro_batches, pack, padded, split_minibatches
from agentrl.training.scorer import TokenScorer


def row(ids, weights, **options):
    return Row(np.array(ids, np.int32), np.array(weights, np.float32), **options)


def test_position_t_predicts_token_t_plus_1():
    batch = collate(
        [
            row([10, 11, 12, 13, 14], [0, 0, 1, 0, 1], advantage=2.0, task=1),
            row([20, 21, 22], [0, 0.5, 0], advantage=-1.0),
        ],
        budget=1000,
    )
    assert batch.input_ids.shape == (2, 32)
    assert batch.input_ids[:, :6].tolist() == [[10, 11, 12, 13, 0, 0], [20, 0, 0, 0, 0, 0]]
    assert batch.count == 3 and len(batch.select) == 256
    assert batch.select[:3].tolist() == [1, 3, 32]  # where 12, 14 and 21 are predicted
    assert batch.targets[:3].tolist() == [12, 14, 21]
    assert batch.weights.tolist() == [1.0, 1.0, 0.5]
    assert batch.advantages.tolist() == [2.0, 2.0, -1.0]
    assert batch.task_ids.tolist() == [1, 1, 0]


class EveryTokenIsItsNumber(nn.Module):
    """A model whose log-probability of token k at position t is -(k + 100 t), up to a constant."""

    def __init__(self):
        super().__init__()
        self.config = type("C", (), {"vocab_size": 50})
        self.device = torch.device("cpu")
        self.anchor = nn.Parameter(torch.zeros(1))

    def set_attn_implementation(self, _):
        pass

    def get_decoder(self):
        return self.hidden

    def hidden(self, input_ids, use_cache):
        positions = torch.arange(input_ids.shape[1]).expand(input_ids.shape)
        return type("H", (), {"last_hidden_state": positions[..., None].float()})

    def get_output_embeddings(self):
        return lambda rows: -torch.arange(50.0) * (1 + rows) + self.anchor

    def forward(self, input_ids, use_cache):
        hidden = self.hidden(input_ids, use_cache).last_hidden_state
        return type("O", (), {"logits": self.get_output_embeddings()(hidden)})


def test_scored_tokens_against_numbers_by_hand():
    batch = collate([row([3, 7, 9, 2], [0, 1, 0, 1])], budget=100)
    scores, entropy = TokenScorer(EveryTokenIsItsNumber())(
        batch.input_ids, batch.select, batch.targets, with_entropy=True
    )
    # token 7 at position 1 is predicted at 0: logits -k, normaliser log Σ e^-k = -log(1 - 1/e);
    # token 2 at position 3 is predicted at 2: logits -3k, normaliser -log(1 - e^-3)
    expected = [-7 + np.log(1 - np.exp(-1)), -6 + np.log(1 - np.exp(-3))]
    assert scores[:2].tolist() == pytest.approx(expected, abs=1e-5)
    # entropy of a geometric distribution with ratio q: -log(1 - q) - log(q) q / (1 - q)
    q = np.exp(-1)
    assert entropy[0].item() == pytest.approx(-np.log(1 - q) + q / (1 - q), abs=1e-5)


def test_padded_rows_score_as_alone():
    model = TokenScorer(tiny_model())
    generator = np.random.default_rng(0)
    rows = [row(generator.integers(0, 61, n), [0] + [1] * (n - 1)) for n in (3, 17, 40, 9, 33)]
    together = collate(rows, 1000)
    scores, _ = model(together.input_ids, together.select, together.targets)
    alone = []
    for one in rows:
        ids = torch.tensor(one.token_ids[None].astype(np.int64))
        table = torch.log_softmax(model.model(ids[:, :-1]).logits[0], -1)
        alone += table.gather(1, ids[0, 1:, None])[:, 0].tolist()
    assert scores[: together.count].tolist() == pytest.approx(alone, abs=1e-5)


def test_first_token_cannot_be_learned():
    with pytest.raises(ValueError, match="no context"):
        row([1, 2], [1, 0])


def test_trailing_environment_tokens_are_not_read():
    assert row([5, 6, 7, 8, 9], [0, 1, 1, 0, 0]).inputs == 2
    assert row([5, 6], [0, 0]).inputs == 0


def test_model_with_a_soft_cap_is_refused():
    class Capped(EveryTokenIsItsNumber):
        def forward(self, input_ids, use_cache):
            out = super().forward(input_ids, use_cache)
            return type("O", (), {"logits": torch.tanh(out.logits)})

    with pytest.raises(ConfigError, match="Capped"):
        TokenScorer(Capped())


@given(st.lists(st.integers(0, 300), max_size=60), st.integers(0, 500))
def test_every_sequence_in_one_bin_within_the_budget(lengths, extra):
    budget = max([1, *lengths]) + extra
    bins = pack(lengths, budget)
    assert sorted(i for places in bins for i in places) == [i for i, n in enumerate(lengths) if n]
    for places in bins:
        assert places
        assert len(places) * padded(max(lengths[i] for i in places), budget) <= budget


def test_too_long_is_an_error_in_bounded_time():
    with pytest.raises(ValueError, match="301 tokens is over the budget of 300"):
        pack([5, 301], 300)


def test_short_rows_do_not_fill_up_a_long_bin():
    assert pack([320, 56, 300, 60, 50], 4096) == [[0, 2], [3, 1, 4]]


def test_micro_batches_hold_every_learned_token_once():
    generator = np.random.default_rng(0)
    rows = []
    for number in range(20):
        weights = (generator.random(int(generator.integers(2, 90))) < 0.3).astype(np.float32)
        weights[0] = 0
        rows.append(row(generator.integers(0, 61, len(weights)), weights, advantage=float(number)))
    batches = micro_batches(rows, 128)
    assert sum(batch.count for batch in batches) == sum(int(r.weights.sum()) for r in rows)
    seen = sorted(
        pair
        for batch in batches
        for pair in zip(batch.advantages.tolist(), batch.targets.tolist(), strict=False)
    )
    learned = sorted(
        (r.advantage, int(t)) for r in rows for t in r.token_ids[np.flatnonzero(r.weights)]
    )
    assert seen == learned


@given(
    st.lists(
        st.tuples(st.integers(0, 12), st.integers(1, 8)), max_size=13, unique_by=lambda g: g[0]
    ),
    st.integers(1, 4),
)
def test_minibatches_keep_groups_whole_and_tasks_even(groups, count):
    members = [(group, group % 3) for group, size in groups for _ in range(size)]
    parts = split_minibatches([g for g, _ in members], [t for _, t in members], count, 0, 5, 0)
    assert sorted(i for part in parts for i in part) == list(range(len(members)))
    homes = [{members[i][0] for i in part} for part in parts]
    assert sum(map(len, homes)) == len(groups)
    for task in range(3):
        sizes = [sum(g % 3 == task for g in home) for home in homes]
        assert max(sizes) - min(sizes) <= 1


def test_minibatches_depend_on_seed_and_step_only():
    groups, tasks = [g for g in range(16) for _ in range(2)], [0] * 32
    first = split_minibatches(groups, tasks, 2, 1, 3, 0)
    assert first == split_minibatches(groups, tasks, 2, 1, 3, 0)
    assert first != split_minibatches(groups, tasks, 2, 1, 4, 0)
    assert first != split_minibatches(groups, tasks, 2, 2, 3, 0)
