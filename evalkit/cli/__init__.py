"""The `evalkit` command, one file per group of commands."""
