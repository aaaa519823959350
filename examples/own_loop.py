"""A loop of your own: one step of GRPO spelled out, with the functions that `groupwise train` is made of.

    python examples/own_loop.py          # about a minute on two cores

For each problem the policy writes a group of G completions, a verifier says which are right, and what counts is how
much better or worse than its own group a completion is:

    A_i = r_i - mean(r_1 ... r_G)                                (Dr. GRPO; GRPO divides by the standard deviation)
    loss = - sum_i sum_t min(ratio_it · A_i, clip(ratio_it, 1 - ε, 1 + ε) · A_i)   over a fixed number of tokens

There is no critic and no reward model. Where all completions of a group earn the same, every A_i is 0 and nothing is
learned from it.
"""

import os

import groupwise as gw

STEPS = int(os.environ.get("EXAMPLE_STEPS", "12"))  # the tests make do with 1

RECIPE = {
    "algorithm": "grpo",
    "run": {"directory": "runs/own-loop", "num_steps": STEPS},
    "task": {"kind": "arithmetic", "kinds": ["product"], "digits": [2, 2]},
    "grpo": {"prompts_per_step": 16, "group_size": 8},
    "sampling": {"max_tokens": 96},
    "optimizer": {"lr": 3e-4},
}


def main() -> str:
    """Train; returns the fingerprint of the weights, which are those that `gw.train` would leave."""
    recipe = gw.load_recipe(RECIPE)
    assert isinstance(recipe, gw.GrpoRecipe)  # tells a type checker which sections there are

    task = gw.make_task(recipe.task)
    everything = task.problems("train")
    policy = gw.load_policy(recipe.model)
    optimizer = gw.Optimizer(policy.trainable(), recipe.optimizer, recipe.run.num_steps)
    updater = gw.Updater(policy, optimizer, recipe.loss, recipe.sampling.temperature, recipe.sampling.max_tokens)

    with gw.make_verifier(recipe.verifier) as verifier:
        actors = gw.Actors.of(policy, task.template, verifier, recipe.engine)
        for step in range(STEPS):
            # 1. which problems: every one once before any comes twice
            size = recipe.grpo.prompts_per_step
            order = gw.problem_order(len(everything), size, recipe.run.seed, step)
            problems = [everything[index] for index in order[:size]]

            # 2. sample G completions of each, and judge them. A draw depends on seed, step, problem and sample alone,
            #    so the same step always draws the same, whatever else the machine does.
            draws = gw.Draws(recipe.run.seed, gw.Purpose.TRAIN, step)
            scored = gw.sample_and_score(actors, problems, recipe.grpo.group_size, recipe.sampling, draws)

            # 3. from rewards to advantages: each completion against its own group
            groups = gw.advantages(scored, recipe.advantage, policy)

            # 4. one optimizer step on the tokens of all groups that have something to teach
            metrics = gw.update(updater, groups, step)

            # 5. from now on the engine samples from the new weights
            actors.engine.publish(policy, optimizer.updates_done)

            rewards = [reward for group in scored for reward in group.rewards if reward is not None]
            teaching = sum(group.has_signal for group in scored)
            print(
                f"step {step:2d}  reward {sum(rewards) / len(rewards):.3f}  {teaching} of {len(scored)} groups teach  "
                f"gradient {metrics.grad_norm:.3f}"
            )
    return policy.fingerprint()


if __name__ == "__main__":
    main()
