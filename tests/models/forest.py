"""Packed forwards described by the histories they hold, for judging sessions against whole histories."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from byrote.models.base import CausalModel, TreeBatch
from byrote.models.packing import Chains, TreeNode, newest_tokens, pack


def batch_of(beams: list[list[TreeNode]], prefixes: dict[int, tuple[int, ...]], entries: int) -> TreeBatch:
    """One packed forward: the newest token of every node in `beams` (by slot), then the chains in `prefixes`.

    Asks for every beam and the end of every chain."""
    chains = Chains([*prefixes], [*prefixes.values()])
    return pack(newest_tokens(beams, entries), chains, device=torch.device("cpu"))


def by_columns(batch: TreeBatch) -> TreeBatch:
    """The same forward, told only about entries that somebody looks at, the highest first."""
    wanted = [torch.nonzero(seen.any(0))[:, 0].flip(0) for seen in batch.ancestry]
    reaches = tuple(len(entries) for entries in wanted)
    columns = torch.nn.utils.rnn.pad_sequence(wanted, batch_first=True)
    is_real = torch.arange(columns.shape[1]) < torch.tensor(reaches)[:, None]
    rows = torch.arange(len(columns))[:, None]
    return replace(
        batch,
        ancestry=batch.ancestry.gather(2, columns[:, None].expand(-1, batch.ancestry.shape[1], -1)) & is_real[:, None],
        entry_positions=batch.entry_positions[rows, columns],
        reaches=reaches,
        columns=columns,
    )


def histories_of(beams: list[list[TreeNode]], prefixes: dict[int, tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The whole history at every packed position of `batch_of(beams, prefixes, …)`."""
    chained = [prefix[:length] for prefix in prefixes.values() for length in range(1, len(prefix) + 1)]
    return [node.history for row in beams for node in row] + chained


def plain_logits(model: CausalModel, histories: Sequence[Sequence[int]]) -> Tensor:
    """The judge: each history by itself."""
    with torch.inference_mode():
        rows = [model.next_logits([history]) for history in histories]
    return torch.cat(rows) if rows else torch.empty(0, model.vocab_size)
