"""Distillation: train only the indexers of the full layers to serve the layers that reuse them."""
