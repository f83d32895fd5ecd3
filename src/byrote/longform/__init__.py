"""Whole works: nv-recall of a generated text, and the two-phase audit that obtains one."""
