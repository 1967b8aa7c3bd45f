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
# # The claims of the abstract
#
# Each claim as a statement that these results can decide, its statistic with a 95% interval, and the
# verdict: shown, not shown, inconclusive, or not run. The rule was fixed before the results:
# `docs/claims.md`.

# %% tags=["parameters"]
episodes_path = "published/mini/episodes.parquet"
history_path = "published/mini/history.parquet"
provenance_path = "published/mini/provenance.json"
csv_path = "paper_figures/notebook/claims.csv"
folder = "paper_figures/notebook"

# %%
import json
from pathlib import Path

import pandas as pd
from IPython.display import Markdown

from agentrl.reporting.claims import claims_table, to_markdown, write_claims
from agentrl.reporting.collect import origin
from agentrl.reporting.episodes import read_episodes, read_history
from agentrl.reporting.notebook import enter_repository

enter_repository()
episodes = read_episodes([Path(episodes_path)])
history = read_history(Path(history_path))
provenance = json.loads(Path(provenance_path).read_text())

# %%
table = claims_table(episodes, history, provenance["starts"])
write_claims(table, Path(csv_path), Path(folder) / "claims")
Markdown(to_markdown(table))

# %% [markdown]
# ## What the abstract says, word for word

# %%
pd.set_option("display.max_colwidth", None)
table[["claim", "quote", "verdict"]]

# %%
print(origin(provenance))
