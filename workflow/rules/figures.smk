# Tables and figures: each is one notebook, executed with checked parameters.


rule main_table:
    input:
        notebook="notebooks/main_table.py",
        episodes=f"{SHOWN}/episodes.parquet",
        provenance=f"{SHOWN}/provenance.json",
    output:
        table=report(
            f"paper_figures/{SCALE}/main_table.csv",
            caption="../report/main_table.rst",
            category="Tables",
            labels={"item": "Main table (Table 3)"},
        ),
        markdown=f"paper_figures/{SCALE}/main_table.md",
        latex=f"paper_figures/{SCALE}/main_table.tex",
    log:
        f"logs/{SCALE}/main_table.log",
    conda:
        "../../environment.yml"
    params:
        executed=f"results/{SCALE}/notebooks/main_table.ipynb",
        folder=subpath(output.table, parent=True),
        code=code_digest("figures"),
    message:
        "Main table"
    shell:
        "agentrl notebook run {input.notebook} --executed {params.executed}"
        " -p episodes_path={input.episodes} -p provenance_path={input.provenance}"
        " -p folder={params.folder} > {log} 2>&1"


rule learning_curves:
    input:
        notebook="notebooks/learning_curves.py",
        history=f"{SHOWN}/history.parquet",
    output:
        curves=report(
            f"paper_figures/{SCALE}/learning_curves.svg",
            caption="../report/learning_curves.rst",
            category="Figures",
            labels={"item": "Learning curves"},
        ),
        staleness=report(
            f"paper_figures/{SCALE}/staleness.svg",
            caption="../report/staleness.rst",
            category="Figures",
            labels={"item": "Staleness"},
        ),
        throughput=report(
            f"paper_figures/{SCALE}/throughput.svg",
            caption="../report/throughput.rst",
            category="Figures",
            labels={"item": "Throughput"},
        ),
        print=expand(
            f"paper_figures/{SCALE}/{{figure}}.{{end}}",
            figure=("learning_curves", "staleness", "throughput"),
            end=("pdf", "png"),
        ),
    log:
        f"logs/{SCALE}/learning_curves.log",
    conda:
        "../../environment.yml"
    params:
        executed=f"results/{SCALE}/notebooks/learning_curves.ipynb",
        folder=subpath(output.curves, parent=True),
        code=code_digest("figures"),
    message:
        "Learning curves, staleness and throughput"
    shell:
        "agentrl notebook run {input.notebook} --executed {params.executed}"
        " -p history_path={input.history} -p folder={params.folder} > {log} 2>&1"


# The tour of one episode, with the policy that was trained here.
rule tour:
    input:
        notebook="notebooks/tour.py",
        config=f"results/{SCALE}/config/evaluate.yaml",
        policy=policy_folder(MULTI_TASK, SEEDS[0]),
        trajectories=trajectory_folder(SEEDS[0]),
    output:
        notebook=f"results/{SCALE}/notebooks/tour.ipynb",
    log:
        f"logs/{SCALE}/tour.log",
    conda:
        "../../environment.yml"
    resources:
        mem_mb=2000,
    params:
        code=code_of("evaluate"),
    message:
        "Tour of one episode"
    shell:
        "agentrl notebook run {input.notebook} --executed {output.notebook}"
        " -p policy_path={input.policy} -p config_path={input.config}"
        " -p trajectories_path={input.trajectories} > {log} 2>&1"


# Recorded episodes to filter, read and compare.
rule explorer:
    input:
        notebook="notebooks/explorer.py",
        trajectories=shown_trajectories(),
        provenance=f"{SHOWN}/provenance.json",
    output:
        notebook=f"results/{SCALE}/notebooks/explorer.ipynb",
    log:
        f"logs/{SCALE}/explorer.log",
    conda:
        "../../environment.yml"
    resources:
        mem_mb=2000,
    params:
        folder=subpath(input.provenance, parent=True),
        code=code_digest("figures"),
    message:
        "Trajectory explorer"
    shell:
        "agentrl notebook run {input.notebook} --executed {output.notebook}"
        " -p results={params.folder} > {log} 2>&1"


rule pass_at_k:
    input:
        notebook="notebooks/pass_at_k.py",
        episodes=f"{SHOWN}/pass_at_k.parquet",
    output:
        figure=report(
            f"paper_figures/{SCALE}/pass_at_k.svg",
            caption="../report/pass_at_k.rst",
            category="Figures",
            labels={"item": "pass@k, alone and mixed (Fig. 8)"},
        ),
        table=f"paper_figures/{SCALE}/pass_at_k.csv",
        print=expand(
            f"paper_figures/{SCALE}/pass_at_k.{{end}}",
            end=("pdf", "png"),
        ),
    log:
        f"logs/{SCALE}/pass_at_k.log",
    conda:
        "../../environment.yml"
    params:
        executed=f"results/{SCALE}/notebooks/pass_at_k.ipynb",
        folder=subpath(output.figure, parent=True),
        code=code_digest("figures"),
    message:
        "pass@k of two policies, alone and mixed"
    shell:
        "agentrl notebook run {input.notebook} --executed {params.executed}"
        " -p episodes_path={input.episodes} -p folder={params.folder} > {log} 2>&1"


rule scaling:
    input:
        notebook="notebooks/scaling.py",
        measurements=f"{SHOWN}/scaling.csv",
    output:
        figure=report(
            f"paper_figures/{SCALE}/scaling.svg",
            caption="../report/scaling.rst",
            category="Figures",
            labels={"item": "Throughput by mode and concurrency (Fig. 4)"},
        ),
        table=f"paper_figures/{SCALE}/scaling.csv",
        print=expand(
            f"paper_figures/{SCALE}/scaling.{{end}}",
            end=("pdf", "png"),
        ),
    log:
        f"logs/{SCALE}/scaling.log",
    conda:
        "../../environment.yml"
    params:
        executed=f"results/{SCALE}/notebooks/scaling.ipynb",
        folder=subpath(output.figure, parent=True),
        code=code_digest("figures"),
    message:
        "Throughput, asynchronous against synchronous"
    shell:
        "agentrl notebook run {input.notebook} --executed {params.executed}"
        " -p measurements_path={input.measurements} -p folder={params.folder} > {log} 2>&1"
