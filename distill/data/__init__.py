"""Calibration text: sources, packing, batches."""
