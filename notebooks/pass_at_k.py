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
# # Cross-policy sampling at inference
#
# Fig. 8 of the paper: how often at least one of k attempts solves a sample, for two policies alone and for
# both in one episode, where a coin decides at every turn who speaks. In the paper (Qwen2.5-14B and
# Llama-3.1-8B on WebShop; no numbers are given) the mixture is a little under the better policy at small k
# and above it at large k. Here: the policy that reinforcement learning starts from, and the one that it ends
# with. pass@k is the unbiased estimate of Chen et al. 2021; bands are 95% intervals over samples and seeds.

# %% tags=["parameters"]
episodes_path = "published/mini/pass_at_k.parquet"
folder = "paper_figures/notebook"

# %%
from pathlib import Path

from IPython.display import Image, display

from agentrl.reporting import pass_at_k
from agentrl.reporting.episodes import read_episodes
from agentrl.reporting.notebook import enter_repository

enter_repository()
measured = Path(episodes_path).is_file()
if not measured:
    print(f"{episodes_path} does not exist: set evaluation.pass_at_k.samples and run the workflow.")

# %%
if measured:
    table = pass_at_k.curves(read_episodes([Path(episodes_path)]))
    display(Image(pass_at_k.write(table, Path(folder) / "pass_at_k")[-1]))

# %%
if measured:
    display(pass_at_k.wide(table))
