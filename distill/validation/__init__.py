"""Held-out evaluation: logit KL, recall, bounds by oracle selections."""
