"""Plain distances between finished sequences, for results rather than search steps."""

from collections.abc import Sequence

import torch
from torch import Tensor


def hamming(left: Sequence[int], right: Sequence[int]) -> int:
    """Number of positions that differ; the lengths must agree."""
    return sum(a != b for a, b in zip(left, right, strict=True))


def levenshtein(left: Sequence[int], right: Sequence[int]) -> int:
    """Wagner–Fischer, row by row."""
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, start=1):
        previous, row[0] = row[0], i
        for j, b in enumerate(right, start=1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (a != b))
    return row[-1]


def levenshtein_many(sequences: Tensor, target: Tensor) -> Tensor:
    """Distance of each row of `sequences` [count, length] to `target` [length']: Wagner–Fischer on whole rows."""
    columns = torch.arange(len(target) + 1, device=sequences.device)
    row = columns.expand(len(sequences), -1)  # [count, length' + 1]
    for step in range(sequences.shape[1]):
        substitution = row[:, :-1] + (sequences[:, step, None] != target)
        fresh = torch.cat([torch.full_like(row[:, :1], step + 1), torch.minimum(substitution, row[:, 1:] + 1)], 1)
        row = (fresh - columns).cummin(-1).values + columns  # insertions, swept left to right
    return row[:, -1]
