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
# # Learning curves
#
# What happened while training: success and reward of the training episodes of each task, how old the
# weights were that sampled them, and how fast it went. Lines are running means over five steps, averaged
# over seeds; bands span the lowest to the highest seed; dots are the unsmoothed values.

# %% tags=["parameters"]
history_path = "published/mini/history.parquet"
folder = "paper_figures/notebook"

# %%
from pathlib import Path

from IPython.display import Image

from agentrl.reporting import figures
from agentrl.reporting.episodes import read_history
from agentrl.reporting.notebook import enter_repository

enter_repository()
history = read_history(Path(history_path))

# %% [markdown]
# ## Success and reward
#
# These are training episodes with cross-policy sampling: part of their turns were spoken by a stale copy.
# The main table's evaluation is by one policy version alone.

# %%
curves = figures.save(figures.learning_curves(history), Path(folder) / "learning_curves")
Image(curves[-1])

# %% [markdown]
# ## Staleness

# %%
staleness = figures.save(figures.staleness(history), Path(folder) / "staleness")
Image(staleness[-1])

# %% [markdown]
# ## Throughput

# %%
throughput = figures.save(figures.throughput(history), Path(folder) / "throughput")
Image(throughput[-1])
