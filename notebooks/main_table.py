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
# # Main table
#
# How often each policy solves held-out samples: this repository's rows in the shape of Table 3 of the
# paper (arXiv 2510.04206), with 95% intervals. Sampled is what reinforcement learning optimises;
# greedy is shown beside it. The paper's own rows stand apart: other models on other samples.

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
from agentrl.reporting.episodes import read_episodes
from agentrl.reporting.notebook import enter_repository
from agentrl.reporting.tables import main_table, published_rows, to_markdown, write_main_table

enter_repository()
episodes = read_episodes([Path(episodes_path)])
provenance = json.loads(Path(provenance_path).read_text())

# %%
table = main_table(episodes, without=variants_of(provenance["records"]))
write_main_table(table, Path(folder) / "main_table")
Markdown(to_markdown(table, published_rows()))

# %% [markdown]
# ## What training each policy cost
#
# `tokens` are those its own training was fed, `tokens_in_all` also those of the policies it continued
# from. `cloned-plus` had about as many tokens more than `cloned` as reinforcement learning had.

# %%
budgets(provenance).round(1)

# %% [markdown]
# ## How episodes ended
#
# Failures of the infrastructure are counted here and in no rate.

# %%
episodes.groupby(["row", "mode", "task"], sort=False)["status"].value_counts().unstack(fill_value=0)

# %%
print(origin(provenance))
