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
# # Throughput, asynchronous against synchronous
#
# Fig. 4 of the paper in miniature: sampled tokens a second of the training loop by mode, by how long the
# environment takes to answer, and by how many episodes live at once. Loop, admission, buffer and episodes are
# those of a training; engine, environment and learner are sleeps on a virtual clock, so the numbers are of the
# order of events, not of a processor. Points are means over draws of durations, bars their range; every mode
# plays the same episodes.
#
# Published (Qwen2.5-14B on WebShop; not comparable): 17, 33 and 56 thousand tokens a second asynchronous
# against 9, 16 and 29 thousand synchronous on 16, 32 and 64 GPUs, 1.89, 2.06 and 1.93 times as many.

# %% tags=["parameters"]
measurements_path = "published/mini/scaling.csv"
folder = "paper_figures/notebook"

# %%
from pathlib import Path

from IPython.display import Image, display

from agentrl.reporting import scaling
from agentrl.reporting.notebook import enter_repository

enter_repository()
measured = Path(measurements_path).is_file()
if not measured:
    print(
        f"{measurements_path} does not exist: make it with `agentrl bench scaling --output FILE`."
    )

# %%
if measured:
    table = scaling.summary(scaling.read(Path(measurements_path)))
    display(Image(scaling.write(table, Path(folder) / "scaling")[-1]))

# %%
if measured:
    display(scaling.wide(table))
