"""A counterfactual study of four models that train for two steps: for tests of what is around it."""

from dataclasses import replace

from byrote.lab.counterfactual import TEST

MINIATURE = replace(
    TEST,
    levels=((0, 3), (2, 0)),
    targets=4,
    sequences=20,
    half_tokens=4,
    reference_passages=5,
    training=replace(TEST.training, step_limit=2, width=16, heads=2, feed_forward_width=16, layers=1),
)
