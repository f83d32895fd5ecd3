"""What a run measures for each window or text: greedy, verbatim, near-verbatim, estimates, prior, long form."""
