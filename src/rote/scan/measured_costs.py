"""Written by bench/scaling_model.py from what was measured; not to be changed by hand."""

from rote.scan.prediction import Costs

MEASURED_IN = "bench/results/scaling_gpu.json and scan_gpu_7b.json"
MEASURED_ON = "NVIDIA H200, 2026-11-15 and 2026-11-16, shapes 7b, 13b, 34b, 70b"
COSTS = Costs(
    operations_per_second=658980413693576.6,
    per_layer=0.00011411234462068862,
    per_row_and_token=7.98359726634499e-11,
    per_forward=0.0012178638401247853,
    per_window=0.0005911932293103014,
    greedy_evals=0.7805989583333334,
    audited_evals=196.95666666666668,
)
