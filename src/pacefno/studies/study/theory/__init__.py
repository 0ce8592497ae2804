"""``pacefno study theory``: each term of the paper's error decomposition, measured on a trained run."""
