"""Which settings reach which stage, and which policies an experiment has."""

from __future__ import annotations

from typing import Any

import pytest

from agentrl.config import resolve
from agentrl.config.stages import (
    evaluated_rows,
    mixed_policies,
    stage_settings,
    stages,
    to_yaml,
    training_runs,
)
from agentrl.errors import ConfigError

PLAIN: dict[str, Any] = {
    "tasks": {"alfworld": {}, "dbbench": {"max_turns": 5}},
    "clones": {
        "cloned": {"stages": [{"steps": 4}]},
        "warm-start": {
            "start": "cloned",
            "stages": [{"steps": 2, "noise": {"alfworld": 0.3, "dbbench": 0.5}}],
        },
    },
    "warm_start": {"episodes_per_step": {"alfworld": 8, "dbbench": 10}},
}


def changed(**sections: Any) -> Any:
    return resolve({**PLAIN, **sections})


def affected(**sections: Any) -> set[str]:
    """Stages whose settings differ from the plain ones."""
    plain, other = resolve(PLAIN), changed(**sections)
    return {
        stage
        for stage in stages(plain)
        if to_yaml(stage_settings(plain, stage)) != to_yaml(stage_settings(other, stage))
    }


TRAININGS = {"train-multi-task", "train-single-alfworld", "train-single-dbbench"}
CLONES = {"clone-cloned", "clone-warm-start"}


def test_runs_rows_and_stages_follow_from_tasks_and_clones() -> None:
    config = resolve(PLAIN)
    assert training_runs(config) == {
        "multi-task": ("alfworld", "dbbench"),
        "single-alfworld": ("alfworld",),
        "single-dbbench": ("dbbench",),
    }
    assert evaluated_rows(config)[:4] == ("base", "expert", "cloned", "warm-start")
    assert set(stages(config)) == {"base", "evaluate"} | CLONES | TRAININGS


def test_a_single_task_run_is_given_its_own_number_of_groups() -> None:
    config = changed(training={"groups_per_task": {"alfworld": 8, "dbbench": 24}})
    own = stage_settings(config, "train-single-dbbench")["training"]["groups_per_task"]
    assert own == {"dbbench": 24}
    part = changed(training={"groups_per_task": {"alfworld": 12}}).training
    assert (part.groups_of("alfworld"), part.groups_of("dbbench")) == (12, 8)


def test_a_single_task_run_is_given_its_own_pools() -> None:
    config = changed(training={"pools": {"alfworld": {"hard": 0.5}}})
    assert stage_settings(config, "train-single-dbbench")["training"]["pools"] == {}
    own = stage_settings(config, "train-single-alfworld")["training"]["pools"]
    assert own == {"alfworld": {"easy": 0.1, "hard": 0.5}}


def test_one_task_has_no_single_task_runs() -> None:
    config = changed(tasks={"alfworld": {}, "dbbench": None})
    assert list(training_runs(config)) == ["multi-task"]


def test_settings_reach_only_the_stages_that_read_them() -> None:
    assert affected(seeds=[0, 1]) == set()
    assert affected(results_from="published") == set()
    assert affected(trackers=["wandb"]) == set()
    assert affected(evaluation={"samples": 3}) == {"evaluate"}
    assert affected(training={"steps": 3}) == TRAININGS
    assert affected(algorithm={"preset": "faithful"}) == TRAININGS
    assert affected(pipeline={"max_staleness": 1}) == TRAININGS
    assert affected(rollout={"temperature": 0.7}) == TRAININGS
    assert affected(rollout={"max_new_tokens": 7}) == TRAININGS | {"evaluate"}
    assert affected(training={"autocast": "bf16"}) == TRAININGS | CLONES
    assert affected(pipeline={"episode_attempts": 1}) == TRAININGS | {"evaluate"}
    assert affected(policy={"layers": 3}) == set(stages(resolve(PLAIN)))
    assert affected(warm_start={**PLAIN["warm_start"], "optimizer": "adamw"}) == CLONES
    more = {**PLAIN["clones"], "cloned": {"stages": [{"steps": 5}]}}
    assert affected(clones=more) == {"clone-cloned"}


def test_pass_at_k_is_a_stage_of_its_own_where_it_is_measured() -> None:
    plain = resolve(PLAIN)
    assert mixed_policies(plain) == () and "mixture" not in stages(plain)
    measured = changed(evaluation={"pass_at_k": {"samples": 3}}, training={"start": "cloned"})
    assert mixed_policies(measured) == ("cloned", "multi-task") and "mixture" in stages(measured)
    assert stage_settings(measured, "evaluate") == stage_settings(plain, "evaluate")
    more = changed(evaluation={"samples": 9, "pass_at_k": {"samples": 3}})
    assert stage_settings(more, "mixture") == stage_settings(measured, "mixture")
    assert resolve(stage_settings(measured, "mixture")).evaluation.pass_at_k.samples == 3
    named = changed(evaluation={"pass_at_k": {"samples": 3, "policies": ["base", "warm-start"]}})
    assert mixed_policies(named) == ("base", "warm-start")


@pytest.mark.parametrize(
    ("policies", "message"),
    [
        (["cloned", "gpt"], "'evaluation.pass_at_k.policies': 'gpt' is none of base, cloned"),
        (["cloned"], "policies: \\['cloned'\\] are not two"),
    ],
)
def test_the_two_policies_of_pass_at_k_exist(policies: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        mixed_policies(changed(evaluation={"pass_at_k": {"samples": 3, "policies": policies}}))


def test_a_change_of_one_task_leaves_the_other_tasks_run_alone() -> None:
    other = {"alfworld": {}, "dbbench": {"max_turns": 6}}
    assert "train-single-alfworld" not in affected(tasks=other)
    assert {"train-single-dbbench", "train-multi-task", "evaluate"} <= affected(tasks=other)


def test_the_size_of_the_evaluation_split_concerns_evaluation_alone() -> None:
    tasks = {"alfworld": {"std_samples": 7}, "dbbench": {"max_turns": 5}}
    assert affected(tasks=tasks) == {"evaluate"}


def test_a_stage_resolves_to_the_settings_it_came_from() -> None:
    config = changed(algorithm={"preset": "faithful"})
    for stage in stages(config):
        again = resolve(stage_settings(config, stage))
        assert again.policy == config.policy
        if stage in TRAININGS:
            assert again.algorithm == config.algorithm
            assert set(again.tasks) == set(training_runs(config)[stage.removeprefix("train-")])
    clone = resolve(stage_settings(config, "clone-warm-start"))
    assert clone.warm_start.stages == config.clones["warm-start"].stages


def test_a_clone_names_only_tasks_of_the_run() -> None:
    config = changed(tasks={"alfworld": {}})
    settings = stage_settings(config, "clone-warm-start")["warm_start"]
    assert settings["episodes_per_step"] == {"alfworld": 8}
    assert settings["stages"][0]["noise"] == {"alfworld": 0.3}


def test_the_folder_of_records_reaches_only_stages_that_open_it() -> None:
    tasks = {"alfworld": {"source": "official"}, "dbbench": {}}
    config = changed(tasks=tasks, data_root="records")
    assert stage_settings(config, "train-single-alfworld")["data_root"] == "records"
    assert "data_root" not in stage_settings(config, "train-single-dbbench")


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"clones": {"a": {"start": "b", "stages": [{"steps": 1}]}}},
            "clones.a.start: 'b' is none of base, a",
        ),
        (
            {
                "clones": {
                    "a": {"start": "b", "stages": [{"steps": 1}]},
                    "b": {"start": "a", "stages": [{"steps": 1}]},
                },
                "training": {"start": "a"},
            },
            "clones.a.start: the chain of starts never reaches base",
        ),
        (
            {"clones": {"expert": {"stages": [{"steps": 1}]}}, "training": {"start": "base"}},
            "clones.expert: the name is taken",
        ),
        ({"training": {"start": "nothing"}}, "training.start: 'nothing' is none of base, cloned"),
        ({"warm_start": {"stages": [{"steps": 1}]}}, "write the stages under clones.<name>.stages"),
        ({"tasks": {"Alf World": {}}}, "tasks.Alf World"),
    ],
)
def test_a_table_of_clones_that_makes_no_sense_is_refused(
    sections: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        changed(**sections)
    assert message in str(refused.value) and "\n" not in str(refused.value)


MATRIX = {
    "without-cross-policy": {"rollout": {"cross_policy": {"stale_ratio": 0.0}}},
    "without-task-normalization": {"algorithm": {"task_normalization": False}},
    "faithful": {"algorithm": {"preset": "faithful"}},
    "synchronous": {"pipeline": {"mode": "sync"}},
}


def _differences(config: Any, run: str) -> dict[str, Any]:
    """Settings in which a run's stage departs from the main training's."""
    main, other = (stage_settings(config, f"train-{name}") for name in ("multi-task", run))
    assert set(main) == set(other)
    return {
        f"{section}.{key}": value
        for section, keys in other.items()
        for key, value in keys.items()
        if main[section][key] != value
    }


def test_a_variant_departs_from_the_main_training_in_what_it_names() -> None:
    config = changed(variants=MATRIX, matrix="full", rollout={"temperature": 1.2})
    assert list(training_runs(config))[3:] == list(MATRIX)
    assert evaluated_rows(config)[-4:] == tuple(MATRIX)
    stale = {"stale_ratio": 0.0, "refresh_every": 10}
    assert _differences(config, "without-cross-policy") == {"rollout.cross_policy": stale}
    assert _differences(config, "without-task-normalization") == {
        "algorithm.task_normalization": False
    }
    assert _differences(config, "synchronous") == {"pipeline.mode": "sync"}
    faithful = _differences(config, "faithful")
    assert {key.partition(".")[0] for key in faithful} == {"algorithm"}
    assert (faithful["algorithm.preset"], faithful["algorithm.clip_high"]) == ("faithful", 0.2)


def test_the_matrix_says_which_variants_are_trained_and_touches_no_other_stage() -> None:
    assert affected(variants=MATRIX, matrix="full") == set()
    assert "synchronous" not in training_runs(changed(variants=MATRIX))
    one = changed(variants=MATRIX, matrix="synchronous")
    assert list(training_runs(one))[3:] == ["synchronous"]
    assert "train-synchronous" in stages(one) and "train-faithful" not in stages(one)


def test_a_variant_of_a_faithful_training_names_its_departure() -> None:
    config = changed(
        variants=MATRIX,
        matrix=["without-task-normalization"],
        algorithm={"preset": "faithful", "ablate": ["clip_high"], "clip_high": 0.28},
    )
    own = config.variant("without-task-normalization").algorithm
    assert set(own.ablate) == {"clip_high", "task_normalization"} and not own.task_normalization
    assert resolve(stage_settings(config, "train-without-task-normalization")).algorithm == own


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"matrix": "fll"}, "matrix: 'fll' is none of variants: without-cross-policy, "),
        ({"matrix": ["same"], "variants": {"same": {}}}, "variants.same: trains as multi-task"),
        ({"variants": {"cloned": {}}}, "variants.cloned: the name is taken"),
        ({"variants": {"single-x": {}}}, "variants.single-x: the name is taken"),
        ({"variants": {"x": {"training": {"steps": 1}}}}, "key 'variants.x.training'"),
        ({"variants": {"x": {"rollout": {"temp": 1}}}}, "variants.x.rollout.temp: unknown"),
        (
            {"variants": {"x": {"algorithm": {"clip_low": -1}}}},
            "variants.x.algorithm.clip_low: Input should be greater than 0",
        ),
    ],
)
def test_a_matrix_that_makes_no_sense_is_refused(sections: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        changed(**{"variants": MATRIX, **sections})
    assert message in str(refused.value) and "\n" not in str(refused.value)
