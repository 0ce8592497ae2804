"""Training: settings, batches and loss, the loop, evaluation."""
