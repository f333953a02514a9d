"""The recipe of an evaluation, one file per section; every field is typed."""
