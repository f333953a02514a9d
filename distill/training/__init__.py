"""The training loop of the whole model, its checkpoints and what it leaves behind."""
