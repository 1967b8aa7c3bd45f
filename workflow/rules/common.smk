# Settings, names and input functions of all stages. The only file with functions.
import json
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

from agentrl.config import resolve
from agentrl.config.stages import (
    EXPERT,
    MULTI_TASK,
    SINGLE_TASK,
    evaluated_rows,
    mixed_policies,
    stage_settings,
    stages,
    training_runs,
    variants_of,
)
from agentrl.errors import ConfigError
from agentrl.images.contexts import describe, needed
from agentrl.provenance import code_digest

try:
    CONFIG = resolve(config)
    IMAGES = describe(Path("envs"))
    # The two policies of pass@k, where the scale measures it.
    MIXED = mixed_policies(CONFIG)
except ConfigError as problem:
    # One line for a person; an exception would be shown with Snakemake's own trace of this file.
    sys.exit(f"error: {problem}")

SCALE = CONFIG.scale
SEEDS = CONFIG.seeds
CLONES = tuple(CONFIG.clones)
RUNS = training_runs(CONFIG)
ROWS = evaluated_rows(CONFIG)
STAGES = stages(CONFIG)
# Manifests of the images that the settings ask for; empty with embedded back ends.
NEEDED_IMAGES = expand("results/images/{image}.json", image=needed(CONFIG))
# No setting of a stage: who watches a run changes none of its numbers.
TRACK = " ".join(f"--track {name}" for name in CONFIG.trackers)
# Jobs must find this environment's programs even when it is not activated.
shell.prefix(f'export PATH="{Path(sys.executable).parent}:$PATH" TRACK="{TRACK}"; ')
PUBLISHED = CONFIG.results_from == "published"
SHOWN = f"{CONFIG.results_from}/{SCALE}"
FIGURES = [
    *expand(f"paper_figures/{SCALE}/main_table.{{end}}", end=("csv", "md", "tex")),
    *expand(
        f"paper_figures/{SCALE}/{{figure}}.{{end}}",
        figure=("learning_curves", "staleness", "throughput"),
        end=("pdf", "svg", "png"),
    ),
    *(
        expand(
            f"paper_figures/{SCALE}/pass_at_k.{{end}}", end=("csv", "pdf", "svg", "png")
        )
        if (Path(f"{SHOWN}/pass_at_k.parquet").is_file() if PUBLISHED else MIXED)
        else []
    ),
    *(
        expand(
            f"paper_figures/{SCALE}/scaling.{{end}}", end=("csv", "pdf", "svg", "png")
        )
        if not PUBLISHED or Path(f"{SHOWN}/scaling.csv").is_file()
        else []
    ),
]

# Policies beside the multi-task one: each table only where its rows are (see `comparison_tables`).
# Where published numbers are shown, verdicts on them are not written as if they were of a run here.
CLAIMS = (
    f"paper_figures/{SCALE}/claims.csv" if PUBLISHED else f"results/{SCALE}/claims.csv"
)


wildcard_constraints:
    seed=r"\d+",
    stage="|".join(STAGES),
    clone="|".join(CLONES) or "none",
    run="|".join(RUNS),
    row="|".join(ROWS),
    image="|".join(IMAGES),


def wanted_results():
    """Policies, histories, evaluations and notebooks; where published numbers are shown, the explorer alone."""
    explorer = f"results/{SCALE}/notebooks/explorer.ipynb"
    if PUBLISHED:
        return [explorer]
    return [
        *(
            policy_folder(name, seed)
            for name in ("base", *CLONES, *RUNS)
            for seed in SEEDS
        ),
        *expand(
            f"results/{SCALE}/train/{{run}}/seed{{seed}}/history.parquet",
            run=RUNS,
            seed=SEEDS,
        ),
        *evaluations(),
        f"results/{SCALE}/notebooks/tour.ipynb",
        explorer,
    ]


def shown_policies():
    """Names of the policies whose numbers are shown, and of the variants among them."""
    if not PUBLISHED:
        return ROWS, CONFIG.trained_variants
    file = Path(f"{SHOWN}/provenance.json")
    if not file.is_file():  # the rules that read it say so
        return (), ()
    provenance = json.loads(file.read_text(encoding="utf-8"))
    records = provenance["records"]
    return [record["name"] for record in records], variants_of(records)


def comparison_tables():
    """Tables 4, 6 and 7 and the claims, in every format; what has no rows is said in one line."""
    rows, variants = shown_policies()
    tables = ["limit_table"]
    if any(row.startswith(SINGLE_TASK) for row in rows):
        tables.append("single_task_table")
    if variants:
        tables.append("ablation_table")
    elif workflow.is_main_process:
        what = "was published" if PUBLISHED else "is trained"
        print(
            f"Table 6 (ablations) is not drawn: no variant {what}; --config matrix=full trains all",
            file=sys.stderr,
        )
    claims = expand(f"paper_figures/{SCALE}/claims.{{end}}", end=("md", "tex"))
    names = expand(
        f"paper_figures/{SCALE}/{{table}}.{{end}}",
        table=tables,
        end=("csv", "md", "tex"),
    )
    return [*names, *claims, CLAIMS]


def policy_folder(name, seed):
    """Where a policy lies, by its name: `base`, a clone or a training run."""
    if name in RUNS:
        return f"results/{SCALE}/train/{name}/seed{seed}/policy"
    if name not in ("base", *CLONES):
        raise WorkflowError(
            f"config key 'training.start': {name!r} is not under clones"
        )
    return f"results/{SCALE}/policies/{name}/seed{seed}"


def trajectory_folder(seed):
    """The recorded episodes of the multi-task run."""
    return f"results/{SCALE}/train/{MULTI_TASK}/seed{seed}/trajectories"


def clone_start(wildcards):
    """The policy that a clone continues from."""
    return policy_folder(CONFIG.clones[wildcards.clone].start, wildcards.seed)


def training_start(wildcards):
    """The policy that RL starts from."""
    return policy_folder(CONFIG.training.start, wildcards.seed)


def evaluated_policy(wildcards):
    """The policy of one row; the expert needs none."""
    if wildcards.row == EXPERT:
        return []
    return policy_folder(wildcards.row, wildcards.seed)


def policy_argument(wildcards, input):
    """What `agentrl evaluate --policy` is given."""
    return input.get("policy") or wildcards.row


def evaluations():
    """The episodes of every row and seed."""
    return expand(
        f"results/{SCALE}/evaluate/{{row}}/seed{{seed}}.parquet", row=ROWS, seed=SEEDS
    )


def training_files(name):
    """One file of every training run and seed."""
    return expand(
        f"results/{SCALE}/train/{{run}}/seed{{seed}}/{name}", run=RUNS, seed=SEEDS
    )


def shown_trajectories():
    """Folders of trajectories for the explorer; published results may have none."""
    if PUBLISHED:
        return sorted(map(str, Path(SHOWN).glob("*/**/trajectories")))
    return training_files("trajectories") + pass_at_k_files("trajectories")


def pass_at_k_files(name):
    """One file of the pass@k of every seed; none where it is not measured."""
    pattern = f"results/{SCALE}/pass_at_k/seed{{seed}}/{name}"
    return expand(pattern, seed=SEEDS) if MIXED else []


def pass_at_k_policies(wildcards):
    """The two policies that are played alone and mixed."""
    return [policy_folder(name, wildcards.seed) for name in MIXED]


def pass_at_k_arguments(wildcards, input):
    """What `agentrl pass-at-k` is given of them."""
    pairs = zip(MIXED, input.policies)
    return " ".join(f"--policy {name}={folder}" for name, folder in pairs)


def folders_of(files):
    """Where each of these files lies."""
    return [str(Path(file).parent) for file in files]


def settings_of(wildcards):
    """The settings that decide a stage's numbers, as JSON: equal settings give equal text."""
    return json.dumps(stage_settings(CONFIG, wildcards.stage), sort_keys=True)


def code_of(stage):
    """Digest of the code that decides a stage's numbers, tasks of one's own included."""
    try:
        return code_digest(stage, CONFIG.task_modules)
    except ConfigError as problem:
        sys.exit(f"error: {problem}")


def context_of(wildcards):
    """Hash of everything that an image's content comes from."""
    return IMAGES[wildcards.image].context


def starts():
    """Which policy each clone and run continues from, as JSON."""
    clones = {name: clone.start for name, clone in CONFIG.clones.items()}
    return json.dumps({**clones, **dict.fromkeys(RUNS, CONFIG.training.start)})
