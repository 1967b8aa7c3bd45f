# Asynchronous reinforcement learning: the multi-task run, and one run a task.


# Two threads, so that on two cores two trainings never overlap: the trainer's engine and learner
# have one core each.
rule train_policy:
    input:
        config=f"results/{SCALE}/config/train-{{run}}.yaml",
        policy=training_start,
        images=NEEDED_IMAGES,
    output:
        policy=directory(f"results/{SCALE}/train/{{run}}/seed{{seed}}/policy"),
        history=f"results/{SCALE}/train/{{run}}/seed{{seed}}/history.parquet",
        trajectories=directory(
            f"results/{SCALE}/train/{{run}}/seed{{seed}}/trajectories"
        ),
        provenance=f"results/{SCALE}/train/{{run}}/seed{{seed}}/provenance.json",
    log:
        f"logs/{SCALE}/train_policy/{{run}}/seed{{seed}}.log",
    benchmark:
        f"benchmarks/{SCALE}/train_policy/{{run}}/seed{{seed}}.tsv"
    conda:
        "../../environment.yml"
    threads: 2
    resources:
        mem_mb=6000,
        runtime=720,
    params:
        folder=subpath(output.history, parent=True),
        state=f"state/{SCALE}/train/{{run}}/seed{{seed}}",
        code=code_of("train"),
    message:
        "Reinforcement learning: {wildcards.run}, seed {wildcards.seed}"
    shell:
        "agentrl train --config {input.config} --policy {input.policy} --run {wildcards.run}"
        " --seed {wildcards.seed} --state {params.state} --output {params.folder} $TRACK"
        " > {log} 2>&1"
