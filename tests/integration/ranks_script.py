"""What each rank of `test_training_ranks.py` does: train every case, and write what came out.

python ranks_script.py FOLDER, alone or under `accelerate launch`. Importable for its cases.
"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from training_toys import SPANS, config_of, gradients, step_of, tiny_model, trajectory

from agentrl.messages import Status
from agentrl.rollout.policy import Policy
from agentrl.training.learner import Learner

LIMIT = Status.LIMIT_REACHED


def lone_row():
    """Two trajectories, of which one is not in the loss: a row for two ranks."""
    model = tiny_model()
    return [
        trajectory(SPANS[0], 1.0, member=0, model=model),
        trajectory(SPANS[1], 0.0, member=1, model=model, status=LIMIT),
    ]


def mixed(**options):
    # Of an older version, or the learner would find its engine out.
    return step_of(tiny_model(), offset=0.1, version=-1, **options)


CASES = {
    "plain": (mixed, {}),
    "packed": (mixed, {"training": {"max_tokens_per_microbatch": 200}}),
    "three rows": (lambda: mixed(groups=1, size=3), {"training": {"minibatches": 1}}),
    "one row": (
        lone_row,
        {
            "algorithm": {"truncated": "mask", "task_normalization": False},
            "training": {"minibatches": 1},
        },
    ),
    "sequences": (mixed, {"algorithm": {"ratio": "sequence", "loss_mean": "sequence"}}),
    "decoupled": (mixed, {"algorithm": {"proximal": "step", "importance": "token"}}),
    "reference": (mixed, {"algorithm": {"kl_coefficient": 0.5}}),
    "recomputed": (mixed, {"training": {"gradient_checkpointing": True}}),
    "adapters": (mixed, {"training": {"lora": {"rank": 4, "alpha": 8}}}),
}
"""By name: the trajectories of a step, and settings."""


def learner_of(settings):
    # Adam turns rounding of a small gradient into as much of its rate.
    training = {"learning_rate": 2e-4, **settings.get("training", {})}
    config = config_of(**{**settings, "training": training})
    reference = tiny_model(1) if config.algorithm.kl_coefficient else None
    return Learner(Policy(tiny_model(), None, None, None), config, 0, reference)


def results(case, folder):
    """Gradient of the whole step as one optimiser step; then two steps: metrics, weights, state."""
    make, settings = CASES[case]
    step = make()
    learner = learner_of(settings)
    batch = learner.prepare(step)
    rows = {index: batch.row(index) for index, live in enumerate(batch.live) if live}
    if learner.algorithm.proximal == "step":
        rows = learner._with_proximal(rows)
    learner.accumulate(
        list(rows.values()), batch.denominator(range(len(step))), len(batch.tasks), len(batch.roles)
    )
    gradient = gradients(learner.model)
    learner.optimizer.zero_grad()
    metrics = [learner.train_step(step), learner.train_step(step)]
    folder.mkdir(parents=True, exist_ok=True)
    learner.save(folder)
    learner.publish(folder, 2)
    weights = {name: value.detach().clone() for name, value in learner.model.named_parameters()}
    ranks = learner.ranks
    learner.close()
    return {"gradient": gradient, "metrics": metrics, "weights": weights, "ranks": ranks}


def sharded(folder):
    """FSDP2's tensors, whole again, in a file and back: weights.py alone, on gloo."""
    from torch.distributed.fsdp import fully_shard

    from agentrl.training.weights import load_state, named_weights, save_state, whole

    model = tiny_model()
    plain = {name: value.detach().clone() for name, value in named_weights(model).items()}
    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for value in model.parameters():
        value.grad = torch.ones_like(value)
    gathered = {name: whole(value.detach()) for name, value in named_weights(model).items()}
    assert all(torch.equal(gathered[name], value) for name, value in plain.items())
    optimizer.step()
    moved = {name: whole(value.detach()).clone() for name, value in named_weights(model).items()}
    first = torch.distributed.get_rank() == 0
    save_state(folder / "sharded.safetensors", model, [optimizer], writes=first)
    torch.distributed.barrier()
    optimizer.step()
    load_state(folder / "sharded.safetensors", model, [optimizer])
    for name, value in named_weights(model).items():
        assert torch.equal(whole(value.detach()), moved[name]), name
    held = [whole(state["exp_avg"]) for state in optimizer.state.values()]
    assert held and all(torch.allclose(value, torch.full_like(value, 0.1)) for value in held)


def main():
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    found = {case: results(case, folder / case) for case in CASES}
    rank = torch.distributed.get_rank()
    sharded(folder)
    torch.save(found, folder / f"rank{rank}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
