"""What the records of a run show: paired comparisons, drift, power, overlap of selections."""
