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
# # Trajectory explorer
#
# Episodes that were recorded in training: find them by task, policy, ending and reward; read one with its
# tools, tokens, log-probabilities and policy versions; put two policies side by side on one sample. After
# a run of your own set `results` to `results/mini`; published results carry a few examples.

# %% tags=["parameters"]
results = "published/mini"
policy = ""  # empty: any
task = ""
status = ""  # "completed", "task limit reached", …
reward = ""  # a number, a range such as "0..0.5", or "none" for infrastructure failures
episode = -1  # a number of the list below; -1: the first of them
first, second = "", ""  # policies to compare; empty: any two that met on a sample

# %%
from pathlib import Path

from IPython.display import HTML, display

from agentrl.reporting.explorer import Explorer
from agentrl.reporting.notebook import enter_repository

enter_repository()
found = Explorer(Path(results))
print(found)

# %% [markdown]
# ## How they ended

# %%
if found:
    display(found.overview())

# %% [markdown]
# ## Which there are
#
# The number on the left is the episode's. `index` is its sample: all runs of one seed meet the same ones.

# %%
if found:
    chosen = found.filter(policy=policy, task=task, status=status, reward=reward)
    display(chosen.head(25))

# %% [markdown]
# ## One of them
#
# What the task offers and what was called; then what happened, turn by turn.

# %%
if found and len(chosen):
    number = episode if episode >= 0 else chosen.index[0]
    display(found.summary(number), found.tools(number), found.turns(number))

# %% [markdown]
# Coloured tokens were sampled and enter the loss; grey ones were written by the environment or the chat
# format. Hover over a token for its id, policy version and probability.

# %%
if found and len(chosen):
    display(HTML(found.text(number)), found.tokens(number).head(40))

# %% [markdown]
# ## Two policies on one sample
#
# Samples that both policies played, those first on which their rewards differ most.

# %%
if found:
    pairs = found.pairs(first, second)
    display(pairs.head(10))

# %%
if found and len(pairs):
    display(found.compare(*pairs.loc[0, ["first", "second"]]))
