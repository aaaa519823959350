"""The gradient oracle: worlds so small that the true policy gradient is known, to hold every estimator against."""
