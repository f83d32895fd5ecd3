"""The table model: tree sessions give what whole histories give, whatever the shape and order of the tree."""

from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rote.errors import ConfigError
from rote.models.base import TreeBatch
from rote.models.table import TableModel

VOCABULARY = 5
ENTRIES = 24


class Grown(NamedTuple):
    """A node of a slot's tree: its whole history and the entries that hold it."""

    history: tuple[int, ...]
    entries: tuple[int, ...]


def batch_of(beams: list[list[Grown]], prefixes: dict[int, tuple[int, ...]], entries: int) -> TreeBatch:
    """One packed forward: the newest token of every node in `beams` (by slot), then the given prefixes."""
    slots, lanes = len(beams), max((len(row) for row in beams), default=0)
    ancestry = torch.zeros(slots, max(lanes, 1), entries, dtype=torch.bool)
    positions = torch.zeros(slots, entries, dtype=torch.int64)
    for slot, row in enumerate(beams):
        for lane, node in enumerate(row):
            ancestry[slot, lane, list(node.entries)] = True
            positions[slot, list(node.entries)] = torch.arange(len(node.entries))
    nodes = [(slot, lane, node) for slot, row in enumerate(beams) for lane, node in enumerate(row)]
    packed = [(slot, place, token) for slot, prefix in prefixes.items() for place, token in enumerate(prefix)]
    ends = torch.tensor([len(prefix) for prefix in prefixes.values()], dtype=torch.int64).cumsum(0) - 1 + len(nodes)

    def tensor(values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64)

    return TreeBatch(
        token_ids=tensor([node.history[-1] for *_, node in nodes] + [token for *_, token in packed]),
        positions=tensor([len(node.history) - 1 for *_, node in nodes] + [place for _, place, _ in packed]),
        slots=tensor([slot for slot, *_ in nodes] + [slot for slot, *_ in packed]),
        entries=tensor([node.entries[-1] for *_, node in nodes] + [place for _, place, _ in packed]),
        lanes=tensor([lane for _, lane, _ in nodes]),
        ancestry=ancestry,
        entry_positions=positions,
        beam_counts=tuple(len(row) for row in beams),
        prefix_lengths=tuple(len(prefix) for prefix in prefixes.values()),
        outputs=torch.cat([torch.arange(len(nodes)), ends]),
    )


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


tokens = st.integers(0, VOCABULARY - 1)


@settings(max_examples=60)
@given(st.integers(0, 1000), st.lists(st.lists(tokens, min_size=1, max_size=5), min_size=1, max_size=3), st.data())
def test_tree_session_equals_whole_histories_for_any_forest(
    seed: int, prefixes: list[list[int]], data: st.DataObject
) -> None:
    """Forks, dying branches, entries in shuffled places and reused ones: every logit is the plain one."""
    model = TableModel.random(seed, vocab_size=VOCABULARY)
    session = model.open_tree(len(prefixes), ENTRIES)
    starts = {slot: tuple(prefix) for slot, prefix in enumerate(prefixes)}
    logits = session.forward(batch_of([[] for _ in prefixes], starts, ENTRIES))
    assert torch.equal(logits, torch.cat([model.next_logits([prefix]) for prefix in starts.values()]))
    forest = [[Grown(prefix, tuple(range(len(prefix))))] for prefix in starts.values()]
    for _ in range(data.draw(st.integers(1, 4))):
        forest = [_fork(row, data) for row in forest]
        histories = [node.history for row in forest for node in row]
        expected = torch.cat([model.next_logits([history]) for history in histories])
        batch = batch_of(forest, {}, ENTRIES)
        assert torch.equal(session.forward(batch), expected)
        assert torch.equal(session.forward(by_columns(batch)), expected)


def _fork(row: list[Grown], data: st.DataObject) -> list[Grown]:
    """Up to three children of surviving nodes, in entries that no survivor needs, drawn in any order."""
    parents = data.draw(st.lists(st.sampled_from(row), min_size=1, max_size=3))
    taken = {entry for parent in parents for entry in parent.entries}
    free = data.draw(st.permutations([entry for entry in range(ENTRIES) if entry not in taken]))
    return [
        Grown((*parent.history, data.draw(tokens)), (*parent.entries, free[child]))
        for child, parent in enumerate(parents)
    ]


def test_memory_survives_growing_and_moving() -> None:
    model = TableModel.random(3, vocab_size=VOCABULARY)
    session = model.open_tree(2, 4)
    session.forward(batch_of([[], []], {1: (1, 2, 3)}, 4))
    session.grow(9)
    assert session.entries == 9
    session.move(1, 0, 3)
    child = Grown((1, 2, 3, 4), (0, 1, 2, 8))
    logits = session.forward(batch_of([[child], [child]], {}, 9))
    assert torch.equal(logits, model.next_logits([child.history, child.history]))


def test_explicit_histories_come_before_the_hashed_table() -> None:
    explicit = {(1, 2): [0.0, 1.0, 2.0], (2, 1): [5.0, 4.0, 3.0], (): [9.0, 9.0, 9.0]}
    model = TableModel(torch.zeros(1, 3), explicit=explicit)
    for history, expected in explicit.items():
        assert model.next_logits([history]).tolist() == [expected]
    assert model.next_logits([(1, 1), (2, 2)]).tolist() == [[0.0] * 3] * 2
    session = model.open_tree(1, 2)
    assert session.forward(batch_of([[]], {0: (1, 2)}, 2)).tolist() == [explicit[(1, 2)]]


def test_order_and_repetition_of_tokens_matter() -> None:
    """Of the 4⁵ histories of five tokens, at most chance collisions share a row of a large table."""
    model = TableModel.random(0, vocab_size=4, rows=1 << 16)
    histories = torch.cartesian_prod(*[torch.arange(4)] * 5).tolist()
    distinct = {tuple(row) for row in model.next_logits(histories).tolist()}
    assert len(distinct) > 0.98 * len(histories)  # 1024²/2·2⁻¹⁶ = 8 collisions expected


def test_same_seed_same_model() -> None:
    left, right, other = (TableModel.random(seed, vocab_size=4) for seed in (7, 7, 8))
    assert torch.equal(left.next_logits([[1, 2]]), right.next_logits([[1, 2]]))
    assert not torch.equal(left.next_logits([[1, 2]]), other.next_logits([[1, 2]]))


@pytest.mark.parametrize("shape", [(4,), (0, 3), (3, 0)])
def test_a_table_without_rows_or_tokens_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="shape"):
        TableModel(torch.zeros(shape))
