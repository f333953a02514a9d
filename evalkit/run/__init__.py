"""A run directory: planned, answered, stored, scored, resumed, merged."""
