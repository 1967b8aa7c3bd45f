# Policies beside the multi-task one, and what they say of the paper's claims.


rule single_task_table:
    input:
        notebook="notebooks/single_task_table.py",
        episodes=f"{SHOWN}/episodes.parquet",
        provenance=f"{SHOWN}/provenance.json",
    output:
        table=report(
            f"paper_figures/{SCALE}/single_task_table.csv",
            caption="../report/single_task_table.rst",
            category="Tables",
            labels={"item": "One task against many (Table 4)"},
        ),
        markdown=f"paper_figures/{SCALE}/single_task_table.md",
        latex=f"paper_figures/{SCALE}/single_task_table.tex",
    log:
        f"logs/{SCALE}/single_task_table.log",
    conda:
        "../../environment.yml"
    params:
        executed=f"results/{SCALE}/notebooks/single_task_table.ipynb",
        folder=subpath(output.table, parent=True),
        code=code_digest("figures"),
    message:
        "One task against many"
    shell:
        "agentrl notebook run {input.notebook} --executed {params.executed}"
        " -p episodes_path={input.episodes} -p provenance_path={input.provenance}"
        " -p folder={params.folder} > {log} 2>&1"


rule ablation_table:
    input:
        notebook="notebooks/ablation_table.py",
        episodes=f"{SHOWN}/episodes.parquet",
        provenance=f"{SHOWN}/provenance.json",
    output:
        table=report(
            f"paper_figures/{SCALE}/ablation_table.csv",
            caption="../report/ablation_table.rst",
            category="Tables",
            labels={"item": "Ablations (Table 6)"},
        ),
        markdown=f"paper_figures/{SCALE}/ablation_table.md",
        latex=f"paper_figures/{SCALE}/ablation_table.tex",
    log:
        f"logs/{SCALE}/ablation_table.log",
    conda:
        "../../environment.yml"
    params:
        executed=f"results/{SCALE}/notebooks/ablation_table.ipynb",
        folder=subpath(output.table, parent=True),
        code=code_digest("figures"),
    message:
        "Ablations"
    shell:
        "agentrl notebook run {input.notebook} --executed {params.executed}"
        " -p episodes_path={input.episodes} -p provenance_path={input.provenance}"
        " -p folder={params.folder} > {log} 2>&1"


rule limit_table:
    input:
        notebook="notebooks/limit_table.py",
        episodes=f"{SHOWN}/episodes.parquet",
        provenance=f"{SHOWN}/provenance.json",
    output:
        table=report(
            f"paper_figures/{SCALE}/limit_table.csv",
            caption="../report/limit_table.rst",
            category="Tables",
            labels={"item": "Task limits (Table 7)"},
        ),
        markdown=f"paper_figures/{SCALE}/limit_table.md",
        latex=f"paper_figures/{SCALE}/limit_table.tex",
    log:
        f"logs/{SCALE}/limit_table.log",
    conda:
        "../../environment.yml"
    params:
        executed=f"results/{SCALE}/notebooks/limit_table.ipynb",
        folder=subpath(output.table, parent=True),
        code=code_digest("figures"),
    message:
        "Episodes that the task's limit ended"
    shell:
        "agentrl notebook run {input.notebook} --executed {params.executed}"
        " -p episodes_path={input.episodes} -p provenance_path={input.provenance}"
        " -p folder={params.folder} > {log} 2>&1"


rule claims:
    input:
        notebook="notebooks/claims.py",
        episodes=f"{SHOWN}/episodes.parquet",
        history=f"{SHOWN}/history.parquet",
        provenance=f"{SHOWN}/provenance.json",
    output:
        claims=report(
            CLAIMS,
            caption="../report/claims.rst",
            category="Tables",
            labels={"item": "Claims of the abstract"},
        ),
        markdown=f"paper_figures/{SCALE}/claims.md",
        latex=f"paper_figures/{SCALE}/claims.tex",
    log:
        f"logs/{SCALE}/claims.log",
    conda:
        "../../environment.yml"
    params:
        executed=f"results/{SCALE}/notebooks/claims.ipynb",
        folder=subpath(output.markdown, parent=True),
        code=code_digest("figures"),
    message:
        "Claims of the abstract"
    shell:
        "agentrl notebook run {input.notebook} --executed {params.executed}"
        " -p episodes_path={input.episodes} -p history_path={input.history}"
        " -p provenance_path={input.provenance} -p csv_path={output.claims}"
        " -p folder={params.folder} > {log} 2>&1"
