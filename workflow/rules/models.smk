# Policies made without reinforcement learning: the base, and clones of the experts.


# Each stage gets a file with its own settings alone, so that an edit reruns what it touches.
rule write_stage_config:
    output:
        config=f"results/{SCALE}/config/{{stage}}.yaml",
    log:
        f"logs/{SCALE}/write_stage_config/{{stage}}.log",
    conda:
        "../../environment.yml"
    params:
        settings=settings_of,
    message:
        "Settings of stage {wildcards.stage}"
    shell:
        "agentrl config write --settings {params.settings:q} --output {output.config} > {log} 2>&1"


rule create_base_policy:
    input:
        config=f"results/{SCALE}/config/base.yaml",
        images=NEEDED_IMAGES,
    output:
        policy=directory(f"results/{SCALE}/policies/base/seed{{seed}}"),
    log:
        f"logs/{SCALE}/create_base_policy/seed{{seed}}.log",
    benchmark:
        f"benchmarks/{SCALE}/create_base_policy/seed{{seed}}.tsv"
    conda:
        "../../environment.yml"
    resources:
        mem_mb=2000,
    params:
        code=code_of("base"),
    message:
        "Untrained policy, seed {wildcards.seed}"
    shell:
        "agentrl policy create --config {input.config} --seed {wildcards.seed}"
        " --output {output.policy} > {log} 2>&1"


# Snapshots live outside the outputs, which Snakemake removes before every attempt.
rule clone_expert:
    input:
        config=f"results/{SCALE}/config/clone-{{clone}}.yaml",
        policy=clone_start,
        images=NEEDED_IMAGES,
    output:
        policy=directory(f"results/{SCALE}/policies/{{clone}}/seed{{seed}}"),
    log:
        f"logs/{SCALE}/clone_expert/{{clone}}/seed{{seed}}.log",
    benchmark:
        f"benchmarks/{SCALE}/clone_expert/{{clone}}/seed{{seed}}.tsv"
    conda:
        "../../environment.yml"
    threads: CONFIG.warm_start.threads
    resources:
        mem_mb=4000,
        runtime=120,
    params:
        state=f"state/{SCALE}/clone/{{clone}}/seed{{seed}}",
        code=code_of("clone"),
    message:
        "Behaviour cloning: {wildcards.clone}, seed {wildcards.seed}"
    shell:
        "agentrl warm-start --config {input.config} --policy {input.policy}"
        " --seed {wildcards.seed} --state {params.state} --output {output.policy} > {log} 2>&1"
