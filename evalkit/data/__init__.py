"""Pinned outside data: fetched once, checked by sha256, read as data and never executed."""
