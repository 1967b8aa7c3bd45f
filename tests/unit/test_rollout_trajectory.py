"""Token records and trajectory files: bit by bit, whole or not at all."""

import json
from io import BytesIO

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.errors import StateError
from agentrl.messages import Status
from agentrl.rollout.engine import Completion
from agentrl.rollout.trajectory import TOKEN_COLUMNS, TokenRecord, Trajectory, Turn, empty_columns
from agentrl.rollout.trajectory_io import read_trajectories, write_shards, write_trajectories


def trajectory(columns=None, **fields):
    values = {
        "task": "echo", "split": "train", "index": 3, "group_id": 9, "member": 1, "seed": 2**62 + 1,
        "status": Status.COMPLETED, "reward": 0.5, "metrics": {"turns": 1.0}, "timings": {},
        "opening": [{"role": "user", "content": "Say é"}],
        "turns": [Turn({"role": "assistant", "content": "x"}, [{"role": "user", "content": "y"}],
                       "stop", "current", {"engine": 0.25})],
        "roles": ("current", "stale"), "error": None,
    }  # fmt: skip
    return Trajectory(**{**values, **(columns or empty_columns()), **fields})


def same(a, b):
    plain = [
        {n: getattr(t, n) for n in Trajectory.__dataclass_fields__ if n not in TOKEN_COLUMNS}
        for t in (a, b)
    ]
    assert plain[0] == plain[1]
    for name, dtype in TOKEN_COLUMNS.items():
        x, y = getattr(a, name), getattr(b, name)
        assert x.dtype == y.dtype == dtype
        assert x.tobytes() == y.tobytes()


float32 = st.floats(width=32, allow_nan=False)
spans = st.one_of(
    st.lists(st.integers(0, 2**31 - 1), max_size=6),
    st.lists(
        st.tuples(st.integers(0, 2**31 - 1), float32, st.integers(0, 2**31 - 1)), max_size=6
    ).map(lambda rows: Completion(*map(list, zip(*rows, strict=True)), "stop") if rows else []),
)


def record(spans):
    made = TokenRecord()
    for turn, span in enumerate(spans):
        if isinstance(span, Completion):
            made.sampled(span, turn % 2, turn)
        else:
            made.environment(span, turn)
    return made


@given(st.lists(spans, max_size=8))
def test_columns_grow_with_the_ids(spans):
    """Pitfall 5: no mask is longer or shorter than its ids, and each says what its token is."""
    made = record(spans)
    columns = made.columns()
    assert {len(column) for column in columns.values()} == {len(made)}
    wanted = [isinstance(s, Completion) for s in spans for _ in getattr(s, "token_ids", s)]
    assert columns["loss_mask"].tolist() == wanted
    outside = ~columns["loss_mask"]
    assert (columns["policy_version"][outside] == -1).all()
    assert (columns["policy_role"][outside] == -1).all()
    assert (columns["behaviour_logprobs"][outside] == 0).all()
    prompt, completion = made.split()
    assert prompt + completion == made.ids and all(wanted[len(prompt) :])
    assert not prompt or not wanted[len(prompt) - 1]


@given(st.lists(spans, max_size=8))
def test_a_record_survives_json(spans):
    made = record(spans)
    again = TokenRecord.from_dict(json.loads(json.dumps(made.to_dict())))
    assert again.to_dict() == made.to_dict() and again.split() == made.split()
    for name, column in again.columns().items():
        assert column.tobytes() == made.columns()[name].tobytes()


texts = st.text(max_size=8)
rows = st.builds(
    lambda spans, **fields: trajectory(record(spans).columns(), **fields),
    st.lists(spans, max_size=4),
    task=texts,
    split=texts,
    index=st.integers(0, 2**40),
    group_id=st.integers(-1, 2**40),
    member=st.integers(0, 100),
    seed=st.integers(0, 2**63 - 1),
    status=st.sampled_from([s for s in Status if not s.is_infrastructure]),
    reward=st.none() | st.floats(allow_nan=False),
    metrics=st.dictionaries(texts, st.floats(allow_nan=False), max_size=3),
    timings=st.dictionaries(texts, st.floats(allow_nan=False), max_size=3),
    opening=st.lists(st.fixed_dictionaries({"role": texts, "content": texts}), max_size=2),
    roles=st.lists(texts, max_size=3).map(tuple),
    error=st.none() | texts,
)


@settings(max_examples=40, deadline=None)
@given(st.lists(rows, max_size=3))
def test_files_give_back_what_was_written(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    write_trajectories(path, rows)
    got = read_trajectories(path)
    assert len(got) == len(rows)
    for a, b in zip(rows, got, strict=True):
        same(a, b)


def test_shards_are_read_in_order_and_by_datasets(tmp_path):
    datasets = pytest.importorskip("datasets")
    made = [
        trajectory(record([[1, 2], Completion([n], [-0.5], [3], "stop")]).columns(), index=n)
        for n in range(25)
    ]
    paths = write_shards(tmp_path / "out", made, rows_per_shard=10)
    assert [p.name for p in paths] == [f"trajectories-0000{n}-of-00003.parquet" for n in range(3)]
    got = read_trajectories(tmp_path / "out")
    assert [t.index for t in got] == list(range(25))
    table = datasets.load_dataset(
        "parquet", data_files=str(tmp_path / "out" / "*.parquet"), cache_dir=str(tmp_path / "hf")
    )["train"]
    assert table[7]["token_ids"] == [1, 2, 7] and table[7]["loss_mask"] == [False, False, True]
    assert table[7]["metrics"] == [{"name": "turns", "value": 1.0}]


def test_damaged_and_foreign_files_are_named(tmp_path):
    path = tmp_path / "rows.parquet"
    write_trajectories(path, [trajectory()] * 20)
    whole = path.read_bytes()
    for damaged in (b"", whole[:-50], whole[: len(whole) // 2], b"x" * 100):
        path.write_bytes(damaged)
        with pytest.raises(StateError, match=r"rows\.parquet"):
            read_trajectories(path)
    table = pq.read_table(BytesIO(whole)).select(["task"])
    pq.write_table(table, path)
    with pytest.raises(StateError, match="holds no trajectories of format 1"):
        read_trajectories(path)
    with pytest.raises(StateError, match="missing"):
        read_trajectories(tmp_path / "missing.parquet")
    (tmp_path / "empty").mkdir()
    with pytest.raises(StateError, match="holds no Parquet file"):
        read_trajectories(tmp_path / "empty")


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "rows.parquet"
    write_trajectories(path, [trajectory()])
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("agentrl.rollout.trajectory_io.pq.write_table", full)
    with pytest.raises(StateError, match="No space left"):
        write_trajectories(path, [trajectory()] * 2)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == [path.name]


def test_what_a_trajectory_refuses():
    with pytest.raises(ValueError, match="different lengths"):
        trajectory({**empty_columns(), "loss_mask": np.ones(1, bool)})
    with pytest.raises(ValueError, match="must not carry a reward"):
        trajectory(status=Status.TASK_ERROR, reward=0.0)
