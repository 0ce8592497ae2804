"""``pacefno study robustness``: noise, missing points and broken symmetry, beyond the paper's limits."""
