"""Figures, each a function from plain values to a matplotlib figure."""
