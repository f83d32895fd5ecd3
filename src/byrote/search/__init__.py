"""Decoding-constrained beam search: the slow reference and the fast engine that it judges."""
