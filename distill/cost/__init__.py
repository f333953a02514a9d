"""Memory, disk and time of a distillation before it runs."""
