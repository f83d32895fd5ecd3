"""The table model: an exact distribution for any history."""

import pytest
import torch

from byrote.errors import ConfigError
from tests.models.forest import batch_of
from tests.table import TableModel


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
