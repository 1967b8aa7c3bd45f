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
# # Episodes that the task's limit ended (Table 7)
#
# An agent that does not know how to finish runs on until the task ends the episode. Rows are the main
# table's; an episode that ran out of the policy's own context is another ending and not counted.

# %% tags=["parameters"]
episodes_path = "published/mini/episodes.parquet"
provenance_path = "published/mini/provenance.json"
folder = "paper_figures/notebook"

# %%
import json
from pathlib import Path

from IPython.display import Markdown

from agentrl.config.stages import variants_of
from agentrl.reporting.collect import origin
from agentrl.reporting.episodes import read_episodes
from agentrl.reporting.limits import limit_table, to_markdown, write_limit_table
from agentrl.reporting.notebook import enter_repository

enter_repository()
episodes = read_episodes([Path(episodes_path)])
provenance = json.loads(Path(provenance_path).read_text())

# %%
table = limit_table(episodes, without=variants_of(provenance["records"]))
write_limit_table(table, Path(folder) / "limit_table")
Markdown(to_markdown(table))

# %%
print(origin(provenance))
