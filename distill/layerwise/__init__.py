"""Distillation of models that do not fit into memory: one decoder layer at a time."""
