"""Plots of a report, drawn with matplotlib."""
