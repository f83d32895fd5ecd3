"""The contract of tree sessions, for every implementation: what a session says is what whole histories say.

`next_logits` judges: it knows nothing of slots, entries and masks.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from byrote.models.base import ModelIdentity, TreeBatch, TreeModel, TreeSession
from byrote.models.hf import head as hf_head
from byrote.models.hf.model import HuggingFaceModel
from byrote.models.hf.tree import TreeSessionHF
from byrote.models.history import HistorySession
from byrote.models.load import OwnModel
from byrote.models.packing import TreeNode
from byrote.models.tokenizer import Tokenizing
from byrote.models.vllm import EngineClient, VllmModel
from tests.models.forest import batch_of, by_columns, histories_of, plain_logits
from tests.models.served import ListedTable
from tests.models.test_hf_scoring import Scaled
from tests.models.tiny import VOCABULARY, tiny_model
from tests.models.vllm_stand_in import StandIn
from tests.table import TableModel, TableSession

ENTRIES = 40
MODELS: dict[str, tuple[Callable[[], TreeModel], type]] = {
    "table": (lambda: TableModel.random(0, vocab_size=VOCABULARY), TableSession),
    "served": (lambda: ListedTable.random(0, vocab_size=VOCABULARY), HistorySession),
    "vllm": (lambda: in_vllm(), HistorySession),
    "grouped heads": (lambda: HuggingFaceModel(tiny_model("llama"), None), TreeSessionHF),
    "sliding window": (lambda: HuggingFaceModel(tiny_model("mistral"), None), TreeSessionHF),
    "soft caps": (lambda: HuggingFaceModel(tiny_model("gemma2"), None), TreeSessionHF),
    "learned positions": (lambda: HuggingFaceModel(tiny_model("gpt2"), None), TreeSessionHF),
    "latent": (lambda: HuggingFaceModel(tiny_model("deepseek_v3"), None), TreeSessionHF),
    "unknown head": (lambda: HuggingFaceModel(Scaled(tiny_model("qwen3")).eval(), None), TreeSessionHF),
    "biases": (lambda: HuggingFaceModel(tiny_model("bloom"), None), HistorySession),
    "recurrent": (lambda: HuggingFaceModel(tiny_model("mamba"), None), HistorySession),
    "mask alone": (lambda: HuggingFaceModel(Scaled(tiny_model("phimoe")).eval(), None), HistorySession),
}


def in_vllm() -> TreeModel:
    """A table inside the stand-in for the engine; nothing of it is read from a folder."""
    table = TableModel.random(0, vocab_size=VOCABULARY)
    client = EngineClient(
        StandIn(lambda folder: table), {"model": "table"}, name="table", listed=VOCABULARY, vocab_size=VOCABULARY
    )
    described = ModelIdentity("table", None, "", "", None, "float32", "cpu")
    return VllmModel(
        client, Tokenizing(None, "table"), described, folder=Path("none"), max_positions=None, eos_ids=frozenset()
    )


class Histories:
    """A model of a user: nothing but `next_logits`."""

    vocab_size = VOCABULARY
    table = TableModel.random(0, vocab_size=VOCABULARY)

    def next_logits(self, histories: list[list[int]]) -> list[list[float]]:
        logits: list[list[float]] = self.table.next_logits(histories).tolist()
        return logits


MODELS["histories alone"] = (lambda: OwnModel(Histories()), HistorySession)
pytestmark = [
    pytest.mark.parametrize("name", MODELS),
    pytest.mark.filterwarnings("ignore:.*recomputed:UserWarning"),
]
FIRST = (4, 5, 6, 7, 8, 9, 10, 11)
OTHER = (12, 13, 14)
LONG = tuple(range(20, 50))
Chains = dict[int, tuple[int, ...]]


@pytest.fixture(autouse=True, scope="module")
def without_gradients() -> Iterator[None]:
    with torch.inference_mode():
        yield


@cache
def opened(name: str) -> TreeModel:
    return MODELS[name][0]()


def open_session(name: str, *, slots: int = 3, entries: int = ENTRIES) -> TreeSession:
    session = opened(name).open_tree(slots, entries)
    assert isinstance(session, MODELS[name][1]), "the implementation that is meant to be judged"
    return session


def assert_same(found: Tensor, expected: Tensor) -> None:
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def check(
    name: str, session: TreeSession, beams: list[list[TreeNode]], chains: Chains, outputs: list[int] | None = None
) -> None:
    """One forward says what the histories say, at all packed positions or those given, whole and in chunks, told of all
    entries or of those that matter."""
    histories = histories_of(beams, chains)
    wanted = list(range(len(histories))) if outputs is None else outputs
    batch = replace(batch_of(beams, chains, session.entries), outputs=torch.tensor(wanted, dtype=torch.int64))
    expected = plain_logits(opened(name), [histories[place] for place in wanted])
    # Evaluating the same batch again stores the same again.
    for variant in variants(batch):
        assert_same(session.forward(variant), expected)
    assert_same(torch.cat(list(session.forward_in_chunks(batch))), expected)


def variants(batch: TreeBatch) -> list[TreeBatch]:
    columns = by_columns(batch)
    reaches = tuple(int(seen.any(0).nonzero().amax()) + 1 if seen.any() else 0 for seen in batch.ancestry)
    few = [by_rows(batch), by_rows(replace(columns, reaches=()))] if batch.beams else []
    return [batch, replace(batch, reaches=reaches), columns, replace(columns, reaches=()), *few]


def grown(parent: TreeNode, token: int, entry: int) -> TreeNode:
    return TreeNode((*parent.history, token), (*parent.entries, entry))


def beginning(chain: tuple[int, ...], length: int) -> TreeNode:
    return TreeNode(chain[:length], tuple(range(length)))


def test_every_place_of_chains_of_one_length_and_of_several(name: str) -> None:
    check(name, open_session(name), [[], [], []], {0: LONG, 1: LONG[::-1], 2: (*OTHER, *LONG[3:])})
    check(name, open_session(name), [[], [], []], {2: FIRST, 0: OTHER, 1: LONG})


def test_outputs_are_the_rows_asked_for_in_the_order_asked_for(name: str) -> None:
    session = open_session(name)
    check(name, session, [[], [], []], {0: FIRST, 1: OTHER}, [9, 2, 10, 7, 2])
    root = beginning(FIRST, 8)
    beams = [[grown(root, token, 20 + token) for token in range(5)], [grown(beginning(OTHER, 3), 9, 3)]]
    check(name, session, beams, {}, [4, 5, 1])
    check(name, session, beams, {2: FIRST[::-1]}, [12, 3, 0, 6])
    check(name, session, beams, {2: OTHER}, [])


def test_beams_descend_from_the_middle_of_a_chain(name: str) -> None:
    """A target is forced first; what leaves it comes later, from any of its places."""
    session = open_session(name)
    check(name, session, [[], [], []], {0: LONG, 1: LONG[::-1]}, [5, 29, 59])
    leaving = [grown(beginning(LONG, length), 3, 30 + place) for place, length in enumerate((4, 11, 28))]
    check(name, session, [leaving, [grown(beginning(LONG[::-1], 9), 2, 33)]], {})
    check(name, session, [[grown(leaving[1], 60, 35), grown(leaving[1], 61, 36)]], {})


def test_beams_may_descend_from_what_the_same_forward_evaluates(name: str) -> None:
    """Ancestors that were forgotten are evaluated again beside their descendants, as is a chain."""
    session = open_session(name)
    child = grown(beginning(FIRST, 8), 30, 12)
    grandchild = grown(child, 31, 9)
    check(name, session, [[child, grandchild], []], {0: FIRST}, [1, 9])
    check(name, session, [[grown(beginning(FIRST, 5), 2, 15), grandchild, child], []], {1: OTHER}, [1, 0])


def test_entries_are_forgotten_when_others_take_them(name: str) -> None:
    session = open_session(name)
    root = beginning(OTHER, 3)
    check(name, session, [[], [], []], {1: OTHER})
    dead, kept = grown(root, 40, 3), grown(root, 41, 4)
    check(name, session, [[], [dead, kept]], {})
    newer = grown(kept, 42, 3)
    check(name, session, [[], [newer]], {})
    check(name, session, [[], [grown(newer, 43, 7), grown(newer, 44, 5)]], {}, [1])
    check(name, session, [[], []], {1: FIRST})
    check(name, session, [[], [grown(beginning(FIRST, 6), 45, 30)]], {})


def test_growing_keeps_what_is_stored(name: str) -> None:
    session = open_session(name, entries=10)
    check(name, session, [[], [], []], {0: FIRST, 2: OTHER})
    session.grow(25)
    assert session.entries == 25
    check(name, session, [[grown(beginning(FIRST, 8), 3, 24)], [], [grown(beginning(OTHER, 2), 5, 12)]], {})


def test_a_moved_slot_goes_on_at_its_new_place(name: str) -> None:
    session = open_session(name)
    check(name, session, [[], [], []], {0: FIRST, 2: OTHER})
    child = grown(beginning(OTHER, 3), 50, 6)
    check(name, session, [[], [], [child]], {})
    session.move([2], [0], 7)
    check(name, session, [[grown(child, 51, 4)], [], [grown(child, 52, 4)]], {})


def test_states_are_copied_within_a_session_and_into_another(name: str) -> None:
    first, second = open_session(name, slots=2), open_session(name, slots=3, entries=30)
    check(name, first, [[], []], {0: FIRST, 1: OTHER})
    child = grown(beginning(OTHER, 3), 50, 5)
    check(name, first, [[], [child]], {})
    stored = first.copy_out([1], 6)
    check(name, first, [[], []], {1: FIRST})  # what was copied out is not touched any more
    for session, slot in ((first, 0), (second, 2)):
        session.copy_in([slot], stored)
        beams: list[list[TreeNode]] = [[] for _ in range(slot)]
        check(name, session, [*beams, [grown(child, 51, 7), grown(beginning(OTHER, 2), 52, 8)]], {})


def test_states_of_several_slots_are_copied_together(name: str) -> None:
    first, second = open_session(name, slots=2), open_session(name, slots=3, entries=30)
    check(name, first, [[], []], {0: FIRST, 1: OTHER})
    second.copy_in([2, 0], first.copy_out([0, 1], 3))
    check(name, second, [[grown(beginning(OTHER, 3), 50, 5)], [], [grown(beginning(FIRST, 3), 51, 7)]], {})


def test_chunks_are_consecutive_pieces_of_few_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hf_head, "CHUNK_ELEMENTS", {"cpu": 4 * VOCABULARY, "cuda": 4 * VOCABULARY})
    monkeypatch.setattr("tests.table.CHUNK", 4)
    monkeypatch.setattr("byrote.models.listed.CHUNK", 4)
    monkeypatch.setattr("byrote.models.load.CHUNK_ELEMENTS", 4 * VOCABULARY)
    session = MODELS[name][0]().open_tree(2, ENTRIES)
    batch = replace(batch_of([[], []], {0: LONG, 1: FIRST}, ENTRIES), outputs=torch.arange(10, 38))
    chunks = list(session.forward_in_chunks(batch))
    assert [len(chunk) for chunk in chunks] == [4] * 7
    assert_same(torch.cat(chunks), session.forward(batch))


def test_a_batch_is_stored_before_its_chunks_are_taken(name: str) -> None:
    session = open_session(name)
    session.forward_in_chunks(batch_of([[]], {0: FIRST}, ENTRIES))
    check(name, session, [[grown(beginning(FIRST, 8), 3, 8)]], {})


def test_logits_are_the_callers_to_change(name: str) -> None:
    session = open_session(name)
    session.forward(batch_of([[]], {0: FIRST}, ENTRIES)).fill_(0.0)
    check(name, session, [[]], {0: FIRST})


tokens = st.integers(0, VOCABULARY - 1)
chains = st.lists(tokens, min_size=1, max_size=9).map(tuple)


@settings(max_examples=15, deadline=None)
@given(st.lists(chains, min_size=1, max_size=3), st.data())
def test_any_forest_says_what_its_histories_say(name: str, starts: list[tuple[int, ...]], data: st.DataObject) -> None:
    """Forks from any place, dying branches, entries in any order and taken again, new chains beside old beams."""
    session = open_session(name, slots=len(starts))
    check(name, session, [[] for _ in starts], dict(enumerate(starts)))
    roots = [[beginning(chain, length) for length in range(1, len(chain) + 1)] for chain in starts]
    forest = roots
    for _ in range(data.draw(st.integers(1, 3))):
        forest = [fork(row, data) for row in forest]
        fresh: Chains = {}
        if len(starts) > 1 and data.draw(st.booleans()):
            forest[-1], fresh = [], {len(starts) - 1: data.draw(chains)}
        count = len(histories_of(forest, fresh))
        check(name, session, forest, fresh, data.draw(st.lists(st.integers(0, count - 1), max_size=6)))
        if fresh:
            (chain,) = fresh.values()
            forest[-1] = [beginning(chain, len(chain))]


def fork(row: list[TreeNode], data: st.DataObject) -> list[TreeNode]:
    """Up to three children of surviving nodes, in entries that no survivor needs."""
    parents = data.draw(st.lists(st.sampled_from(row), min_size=1, max_size=3))
    taken = {entry for parent in parents for entry in parent.entries}
    free = data.draw(st.permutations([entry for entry in range(ENTRIES) if entry not in taken]))
    return [grown(parent, data.draw(tokens), free[child]) for child, parent in enumerate(parents)]


def by_rows(batch: TreeBatch) -> TreeBatch:
    """The same batch, with rows for the slots that have beams only."""
    rows = [slot for slot, count in enumerate(batch.beam_counts) if count]
    at = torch.tensor(rows, dtype=torch.int64)
    return replace(
        batch,
        ancestry=batch.ancestry[at],
        entry_positions=batch.entry_positions[at],
        beam_counts=tuple(batch.beam_counts[slot] for slot in rows),
        columns=None if batch.columns is None else batch.columns[at],
        rows=at,
        row_of=torch.searchsorted(at, batch.slots[: batch.beams]),
    )
