"""Studies: a grid of scans in one folder, their windows paired by span, their figures laid over each other."""
