# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Ablations (Table 6)
#
# Multi-task training again, each time with something changed: same tasks, start, budget, seeds and
# evaluation. `variants` in `config/config.yaml` says what each changes; `--config matrix=full` trains them.

# %% tags=["parameters"]
episodes_path = "published/mini/episodes.parquet"
provenance_path = "published/mini/provenance.json"
folder = "paper_figures/notebook"

# %%
import json
from pathlib import Path

from IPython.display import Markdown

from agentrl.config.stages import variants_of
from agentrl.reporting.collect import budgets, origin
from agentrl.reporting.comparisons import (
    ablation_table,
    to_markdown,
    write_comparison,
)
from agentrl.reporting.episodes import read_episodes
from agentrl.reporting.notebook import enter_repository

enter_repository()
episodes = read_episodes([Path(episodes_path)])
provenance = json.loads(Path(provenance_path).read_text())
variants = variants_of(provenance["records"])

# %%
comparison = ablation_table(episodes, variants)
write_comparison(comparison, Path(folder) / "ablation_table")
Markdown(to_markdown(comparison))

# %% [markdown]
# ## What each cost

# %%
costs = budgets(provenance).round(1)
costs[costs["policy"].isin(["multi-task", *variants])]

# %%
print(origin(provenance))
