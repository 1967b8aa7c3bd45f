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
# # One task against many (Table 4)
#
# Every policy that was trained on one task, measured on all tasks, beside the one that was trained on all.
# Differences are paired: the same samples, the same seeds. The paper's rows stand apart.

# %% tags=["parameters"]
episodes_path = "published/mini/episodes.parquet"
provenance_path = "published/mini/provenance.json"
folder = "paper_figures/notebook"

# %%
import json
from pathlib import Path

from IPython.display import Markdown

from agentrl.reporting.collect import origin
from agentrl.reporting.comparisons import single_task_table, to_markdown, write_comparison
from agentrl.reporting.episodes import read_episodes
from agentrl.reporting.notebook import enter_repository

enter_repository()
episodes = read_episodes([Path(episodes_path)])
provenance = json.loads(Path(provenance_path).read_text())

# %%
comparison = single_task_table(episodes)
write_comparison(comparison, Path(folder) / "single_task_table")
Markdown(to_markdown(comparison))

# %%
print(origin(provenance))
