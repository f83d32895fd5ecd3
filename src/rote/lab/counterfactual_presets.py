"""Counterfactual studies of three sizes: minutes, an afternoon, and seconds for tests."""

from dataclasses import replace

from rote.lab.counterfactual import CounterfactualPlan
from rote.lab.options import PresetName
from rote.lab.train import TrainingPlan

# One thread each: the study trains as many models at once as there are cores.
_SMALL = TrainingPlan(
    layers=2, width=64, heads=4, feed_forward_width=192, context=64, rows_per_step=1, learning_rate=6e-3, threads=1
)
_LARGER = TrainingPlan(
    layers=4, width=192, heads=6, feed_forward_width=512, context=256, rows_per_step=4, learning_rate=2e-3, threads=1
)

QUICK = CounterfactualPlan(
    training=replace(_SMALL, width=128, feed_forward_width=384, learning_rate=3e-3),
    targets=14,
    sequences=2000,
    half_tokens=20,
)
FULL = CounterfactualPlan(
    training=_LARGER, targets=28, sequences=5000, half_tokens=50, repetitions=5, vocabulary_size=2048
)
TEST = CounterfactualPlan(
    training=_SMALL,
    levels=((0, 90), (30, 45), (60, 0)),
    targets=9,
    sequences=800,
    half_tokens=8,
    vocabulary_size=512,
    reference_passages=40,
)
PRESETS: dict[PresetName, CounterfactualPlan] = {"quick": QUICK, "full": FULL, "test": TEST}
