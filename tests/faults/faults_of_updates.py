"""Faults between the advantage and the new weights."""

from groupwise.errors import ConfigError, UnsupportedModelError
from lab import Fault, fails, stops

LOSSES = "unit/training/test_losses_through_the_model.py"
OPTIMIZER = "unit/training/test_optimizer.py"
WEIGHTS = stops("training", "the weights of an update's tokens sum to")
FORWARD = stops("models", "the packed forward differs from transformers' eager forward", UnsupportedModelError)
SLOW_LOOPS = fails(
    "unit/training/test_update.py",
    "test_the_first_update_equals_the_papers_loops",
    aggregation="constant",
    temperature=1.0,
)

FAULTS = (
    Fault(12, "The stop token has no weight in the loss", WEIGHTS).by(
        "algorithms",
        "AGGREGATIONS[aggregation](lengths, batch).repeat_interleave(lengths)",
        "AGGREGATIONS[aggregation](lengths, batch).repeat_interleave(lengths).index_fill(0, lengths.cumsum(0) - 1, 0)",
    ),
    Fault(
        14,
        "Masked completions leave the loss and stay in its denominator",
        fails(LOSSES, "test_masked_truncated_completions_leave_loss_and_denominator", aggregation="sequence"),
    ).by("training", "sum(len(rows) for rows in rows_of)", "sum(len(group.advantages) for group in groups)"),
    Fault(15, "Positions of completions are shifted by one", FORWARD).by(
        "models",
        "np.arange(len(prompt), len(prompt) + len(read))",
        "np.arange(len(prompt), len(prompt) + len(read)) + 1",
    ),
    Fault(15, "Completions attend to what stands before their prompt too", FORWARD).by(
        "models", "slice(run.start, end)", "slice(0, end)"
    ),
    Fault(15, "Completions see the token that follows", FORWARD).by(
        "models",
        "kernel.forward(query, key, value, layout.lengths, layout.lengths, True, scale)",
        "kernel.forward(query, key, value, layout.lengths, layout.lengths, False, scale)",
    ),
    Fault(
        0,
        "On a GPU, completions see the token that follows",
        fails("unit/models/test_packed.py", "test_a_long_group_is_the_same_fused_and_in_blocks"),
    ).by(
        "models",
        "torch.ones(rows, rows, dtype=torch.bool, device=query.device).triu_(1)",
        "torch.ones(rows, rows, dtype=torch.bool, device=query.device).triu_(2)",
    ),
    Fault(
        0,
        "Threads add a gradient in the order in which they come",
        fails("unit/models/test_packed.py", "test_the_order_of_threads_cannot_change_a_gradient"),
    ).by("models", "nn.functional.embedding(packed.head_positions, row)", "row[packed.head_positions]"),
    Fault(16, "Every micro-batch has its own denominator", WEIGHTS).by(
        "training",
        "_micro_batch([pieces[i] for i in chunk], batch, config.aggregation, device)",
        "_micro_batch([pieces[i] for i in chunk], BatchSize(sum(len(pieces[i][1]) for i in chunk), 1, "
        "max_tokens), config.aggregation, device)",
    ),
    Fault(
        20,
        "k1 is in the loss, where the expectation of its gradient is 0",
        stops("training", "has a gradient whose expectation is 0", ConfigError),
        settings=("loss.kl_coef=0.1", "loss.kl_estimator=k1"),
    ),
    Fault(20, "k3 is computed as k1", fails("lab/oracle/test_kl.py", "test_what_each_estimator_is_unbiased_for")).by(
        "algorithms:k3", "torch.expm1(log_ratio) - log_ratio", "-log_ratio"
    ),
    Fault(0, "Advantages are shifted by one completion on their way to the loss", SLOW_LOOPS).by(
        "training",
        "zip(completions, group.advantages, views, old, strict=True)",
        "zip(completions, [own * 0 + other[0] for own, other in zip(group.advantages, "
        "(*group.advantages[-1:], *group.advantages[:-1]), strict=True)], views, old, strict=True)",
    ),
    Fault(0, "The loss raises what it should lower", SLOW_LOOPS).by(
        "algorithms",
        "TokenLosses(-objective, ratio.detach(), clipped)",
        "TokenLosses(objective, ratio.detach(), clipped)",
    ),
    Fault(0, "The old log-probabilities are not detached", stops("training", "the gradient is exactly zero")).by(
        "training", "before if first else old", "logprobs if first else old"
    ),
    Fault(
        0,
        "The entropy bonus has the wrong sign",
        fails(LOSSES, "test_the_entropy_bonus_has_the_gradient_of_minus_the_entropy"),
    ).by(
        "algorithms", "loss - objective.entropy_coef * tokens.entropy", "loss + objective.entropy_coef * tokens.entropy"
    ),
    Fault(
        0,
        "The gradient is not clipped",
        fails(OPTIMIZER, "test_the_norm_is_reported_before_clipping_and_cut_to_the_limit"),
    ).by("training", "self.config.max_grad_norm or math.inf", "math.inf"),
    Fault(
        0,
        "The learning rate is that of the step before",
        fails(OPTIMIZER, "test_the_rate_of_a_step_is_used_in_that_step"),
    ).by(
        "training",
        "share = learning_rate_share(self.config, step, self.num_steps)",
        "share = learning_rate_share(self.config, step - 1, self.num_steps)",
    ),
)
