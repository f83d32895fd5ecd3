"""Intervals, curves and comparisons; undefined statistics are NaN with a reason.

intervals     a share of independent windows: Wilson and exact
units         what counts as independent: documents, or blocks of one text
clustered     rates of windows that overlap or share a document
queries       n ↔ p at any magnitude
curves        (n, p) and (ε, n, p) rate curves
brackets      the share of extractable windows, at least and at most
drawn         what a random draw says about all it was drawn from
planning      samples and token evaluations before a run
compare       two runs on the same windows
multiplicity  many tests at once: Holm
empirical     sampled hits against computed probabilities
population    what a set of windows says together
"""
