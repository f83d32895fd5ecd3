"""Intervals, curves and comparisons; undefined statistics are NaN with a reason."""
