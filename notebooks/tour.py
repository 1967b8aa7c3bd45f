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
# # A tour of one episode
#
# A policy meets one sample of a task and speaks until the task ends. Everything that the learner will
# later see is recorded on the way: which tokens the policy sampled and with what probability, which
# version of the weights spoke, and which tokens the environment wrote. Nothing is re-tokenised afterwards.

# %% tags=["parameters"]
policy_path = ""  # empty: a trained policy of your own, a published one, or an untrained one
config_path = ""  # empty: the settings of scale mini
trajectories_path = "results/mini/train/multi-task/seed0/trajectories"
task = "dbbench"
index = 0
seed = 0

# %%
from pathlib import Path

from IPython.display import HTML, display

from agentrl.reporting import inspect, tour
from agentrl.reporting.notebook import enter_repository
from agentrl.rollout.policy import load_tokenizer

enter_repository()
config = tour.settings(config_path)
policy = tour.find_policy(policy_path)

# %% [markdown]
# ## Playing
#
# The policy answers with tool calls; the environment answers each with one message.

# %%
shown = await tour.play(config, policy, task, index, seed)
print(f"Policy: {shown.policy}")
inspect.summary(shown.trajectory)

# %%
print(shown.trajectory.opening[-1]["content"])

# %%
inspect.turn_table(shown.trajectory)

# %% [markdown]
# ## What the learner would see
#
# Coloured tokens were sampled and enter the loss; grey ones were written by the environment or the chat
# format. Hover over a token for its id, policy version and probability.

# %%
HTML(inspect.to_html(shown.trajectory, shown.decode))

# %%
inspect.token_table(shown.trajectory, shown.decode).head(30)

# %% [markdown]
# ## An episode from training
#
# In training each turn is spoken by the current policy or, one time in four, by a stale copy
# (cross-policy sampling, §3.1 of the paper), and new weights arrive in the middle of an episode.

# %%
if policy and Path(trajectories_path).is_dir():
    trajectory = tour.recorded(Path(trajectories_path))
    display(inspect.summary(trajectory), inspect.turn_table(trajectory))
    display(HTML(inspect.to_html(trajectory, load_tokenizer(policy).decode)))
else:
    print("No training of your own yet: run the workflow, then this notebook again.")
