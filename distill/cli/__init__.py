"""The `distill` command, one file per command."""
