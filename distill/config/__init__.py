"""The recipes of a distillation and of a search; every field is typed."""
