"""Figures: functions from plain values to a `Drawing` with its caption, or to a figure where the caller captions it."""
