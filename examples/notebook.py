# %% [markdown]
# # One run, looked at closely
#
# A notebook in plain Python: VS Code, PyCharm and Jupyter (through jupytext) show each `# %%` as a cell, and
# `python examples/notebook.py` runs it as it is, in under two minutes on two cores.

# %%
import os
from pathlib import Path

import groupwise as gw

STEPS = int(os.environ.get("EXAMPLE_STEPS", "10"))  # the tests make do with 1

# %% [markdown]
# ## Before: what does the base model do?
#
# It comes with the package: 1.7 million parameters that know how to work a product out, but mostly answer at once.

# %%
for text, (_, verdict) in zip((answers := gw.sample("base", "What is 23 × 17?")).texts, answers, strict=True):
    print(f"{verdict.outcome:10} {text}")

# %% [markdown]
# ## Train
#
# A recipe is data: a TOML file, or the same tables as dictionaries. An unknown key is an error that names the nearest
# known one. `with_changes` gives a checked copy.

# %%
recipe = gw.load_recipe(
    {
        "algorithm": "grpo",
        "run": {"directory": "runs/notebook", "num_steps": 60},
        "task": {"kind": "arithmetic", "kinds": ["product"], "digits": [2, 2]},
        "grpo": {"prompts_per_step": 16, "group_size": 8},
        "sampling": {"max_tokens": 96},
        "optimizer": {"lr": 3e-4},
        "evaluation": {"every": 5, "num_problems": 32, "num_samples": 2, "test_problems": 64, "test_samples": 2},
    }
).with_changes({"run.num_steps": STEPS})

try:
    recipe.with_changes({"grpo.group_sise": 8})
except gw.ConfigError as error:
    print(error)

run = gw.train(recipe, restart=True)
run  # as the last line of a cell: its state and its evaluations

# %% [markdown]
# ## The run as tables
#
# `to_pandas()` and `to_arrow()` give data frames; polars and DuckDB read a table as it is.

# %%
steps = run.steps()
for line in steps:
    print(f"step {line['step']:2d}  reward {line['reward']:.3f}  entropy {line['entropy']:.3f}")

# %% [markdown]
# ## One group, the heart of GRPO
#
# The completions of one prompt, what each earned, and how much better or worse than the group's mean that is. A group
# whose completions all earn the same has no `signal` and teaches nothing.

# %%
group = next(group for group in run.groups(0) if group["signal"])
print(f"{group['question']}  mean reward {group['reward']:.3f}, standard deviation {group['reward_std']:.3f}")
for row in run.completions(0, group["problem"]):
    print(f"{row['reward']:4.1f}  advantage {row['advantage']:+.3f}  {row['text']}")

# %% [markdown]
# ## Can any of it be trusted?
#
# A recorded completion is made again from its keys, and must be the same to the bit.

# %%
again = gw.replay(run.path, step=0, problem_id=group["problem"], sample=0)
print("identical" if again.identical else "different", again.token_ids[:8])

# %% [markdown]
# ## After: did it learn?
#
# The same problems and the same random numbers for both, so the difference is paired.

# %%
assert run.best is not None
measured = gw.evaluate(run.best, against="base", problems=min(64, 16 * STEPS), samples=2)
print("after     ", measured.pass_at_1)
print("difference", measured.difference)
print("report    ", gw.report(Path("runs/notebook")))
