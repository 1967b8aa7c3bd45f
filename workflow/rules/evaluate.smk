# Every row of the main table plays the same held-out samples.


rule evaluate_policy:
    input:
        config=f"results/{SCALE}/config/evaluate.yaml",
        policy=evaluated_policy,
        images=NEEDED_IMAGES,
    output:
        episodes=f"results/{SCALE}/evaluate/{{row}}/seed{{seed}}.parquet",
        provenance=f"results/{SCALE}/evaluate/{{row}}/seed{{seed}}.provenance.json",
    log:
        f"logs/{SCALE}/evaluate_policy/{{row}}/seed{{seed}}.log",
    benchmark:
        f"benchmarks/{SCALE}/evaluate_policy/{{row}}/seed{{seed}}.tsv"
    conda:
        "../../environment.yml"
    threads: CONFIG.evaluation.threads
    resources:
        mem_mb=4000,
        runtime=120,
    params:
        policy=policy_argument,
        code=code_of("evaluate"),
    message:
        "Evaluation: {wildcards.row}, seed {wildcards.seed}"
    shell:
        "agentrl evaluate --config {input.config} --policy {params.policy} --name {wildcards.row}"
        " --split std --seed {wildcards.seed} --output {output.episodes} > {log} 2>&1"


# Two policies alone and mixed turn by turn, many attempts a sample.
rule evaluate_pass_at_k:
    input:
        config=f"results/{SCALE}/config/mixture.yaml",
        policies=pass_at_k_policies,
        images=NEEDED_IMAGES,
    output:
        episodes=f"results/{SCALE}/pass_at_k/seed{{seed}}/episodes.parquet",
        provenance=f"results/{SCALE}/pass_at_k/seed{{seed}}/episodes.provenance.json",
        trajectories=directory(f"results/{SCALE}/pass_at_k/seed{{seed}}/trajectories"),
    log:
        f"logs/{SCALE}/evaluate_pass_at_k/seed{{seed}}.log",
    benchmark:
        f"benchmarks/{SCALE}/evaluate_pass_at_k/seed{{seed}}.tsv"
    conda:
        "../../environment.yml"
    threads: CONFIG.evaluation.threads
    resources:
        mem_mb=4000,
        runtime=240,
    params:
        folder=subpath(output.episodes, parent=True),
        policies=pass_at_k_arguments,
        code=code_of("mixture"),
    message:
        "pass@k of two policies, alone and mixed: seed {wildcards.seed}"
    shell:
        "agentrl pass-at-k --config {input.config} {params.policies} --split std"
        " --seed {wildcards.seed} --output {params.folder} > {log} 2>&1"


rule collect_pass_at_k:
    input:
        episodes=pass_at_k_files("episodes.parquet"),
        provenance=pass_at_k_files("episodes.provenance.json"),
    output:
        episodes=f"results/{SCALE}/pass_at_k.parquet",
        provenance=f"results/{SCALE}/pass_at_k.provenance.json",
    log:
        f"logs/{SCALE}/collect_pass_at_k.log",
    conda:
        "../../environment.yml"
    message:
        "Collecting attempts"
    shell:
        "python -m agentrl.reporting.pass_at_k {output.episodes} {input.episodes} > {log} 2>&1"


# One file each for episodes, histories and provenance: what figures are drawn from.
rule collect_results:
    input:
        evaluations=evaluations(),
        clones=[policy_folder(name, seed) for name in CLONES for seed in SEEDS],
        histories=training_files("history.parquet"),
        records=training_files("provenance.json"),
        trajectories=training_files("trajectories"),
    output:
        episodes=f"results/{SCALE}/episodes.parquet",
        history=f"results/{SCALE}/history.parquet",
        provenance=f"results/{SCALE}/provenance.json",
    log:
        f"logs/{SCALE}/collect_results.log",
    conda:
        "../../environment.yml"
    params:
        folder=subpath(output.episodes, parent=True),
        runs=folders_of(training_files("history.parquet")),
        starts=starts(),
    message:
        "Collecting episodes and histories"
    shell:
        "python -m agentrl.reporting.collect {params.folder} --evaluations {input.evaluations}"
        " --runs {params.runs} --clones {input.clones} --starts {params.starts:q} > {log} 2>&1"


# The training loop against sleeps on a virtual clock: of no policy and no seed of the run.
rule bench_scaling:
    output:
        measurements=f"results/{SCALE}/scaling.csv",
    log:
        f"logs/{SCALE}/bench_scaling.log",
    conda:
        "../../environment.yml"
    resources:
        mem_mb=2000,
    params:
        size=(
            "--concurrency 4 --concurrency 16 --seeds 2 --steps 3"
            if SCALE == "smoke"
            else ""
        ),
        code=code_digest("scaling"),
    message:
        "Throughput by mode, latency and concurrency"
    shell:
        "agentrl bench scaling {params.size} --output {output.measurements} > {log} 2>&1"
