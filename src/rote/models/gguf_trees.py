"""llama.cpp evaluating a tree of histories in one pass: every different beginning once, whatever shares it.

A token of a llama.cpp batch may belong to several sequences; it then is one cell of the key-value memory that all of
them see. So histories become sequences, and the nodes of their common trie the tokens of the batch: each attends to its
ancestors and to nothing else. The memory is emptied between passes.
"""

import ctypes
import weakref
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rote.errors import ModelError

ROOM_TOKENS = 4096
"""Cells of the key-value memory: the longest history."""
PASS_TOKENS = 256
"""Different tokens in one pass, where no single history is longer: every token looks at the cells of all others, though
most are masked."""
PASS_SEQUENCES = 64
"""Histories in one pass that are no beginning of another."""
PASS_LOGITS = 1 << 25
"""Logits asked for in one pass."""
ALL_LAYERS = 1 << 16


class Asked(NamedTuple):
    """A history, and the places of it after which logits are wanted (0: after its first token)."""

    token_ids: tuple[int, ...]
    places: tuple[int, ...]


class Node(NamedTuple):
    token: int
    position: int
    sequences: list[int]


class Trie:
    """The different beginnings of some histories, parents before children."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.sequences = 0
        self._children: dict[tuple[int, int], int] = {}

    def missing(self, token_ids: Sequence[int]) -> int:
        """Nodes that adding this history would make."""
        node = -1
        for place, token in enumerate(token_ids):
            found = self._children.get((node, token))
            if found is None:
                return len(token_ids) - place
            node = found
        return 0

    def add(self, token_ids: Sequence[int]) -> list[int]:
        """The node of every place; all of them are now in one more sequence, unless they were a path already."""
        path, node, is_new = [], -1, self.missing(token_ids) > 0
        for place, token in enumerate(token_ids):
            found = self._children.get((node, token))
            if found is None:
                found = self._children[node, token] = len(self.nodes)
                self.nodes.append(Node(token, place, []))
            if is_new:
                self.nodes[found].sequences.append(self.sequences)
            path.append(found)
            node = found
        self.sequences += is_new
        return path


@cache
def library() -> Any:
    """llama.cpp's own functions; a ModelError says how to install them."""
    try:
        import llama_cpp.llama_cpp as functions
    except ImportError as error:
        raise ModelError(
            "a .gguf model needs llama-cpp-python, which is not installed. Install it with: pip install 'rote[gguf]'"
        ) from error
    functions.llama_backend_init()
    functions.llama_log_set(_silence(functions), ctypes.c_void_p(0))
    return functions


@cache  # kept for as long as the library may call it
def _silence(functions: Any) -> Any:
    """A log that says nothing."""
    return functions.llama_log_callback(lambda level, text, user_data: None)


def _free(functions: Any, batch: Any, context: Any, model: Any) -> None:
    functions.llama_batch_free(batch)
    functions.llama_free(context)
    functions.llama_model_free(model)


class GgufTrees:
    """A loaded .gguf file with room for one pass."""

    def __init__(self, path: str, *, on_gpu: bool, threads: int) -> None:
        self._functions = functions = library()
        settings = functions.llama_model_default_params()
        settings.n_gpu_layers = ALL_LAYERS if on_gpu else 0
        self.model = functions.llama_model_load_from_file(path.encode(), settings)
        if not self.model:
            raise ModelError(f"{path} cannot be loaded by llama.cpp. Get a complete .gguf file of a language model.")
        self.vocabulary = functions.llama_model_get_vocab(self.model)
        self.vocab_size = int(functions.llama_vocab_n_tokens(self.vocabulary))
        self.max_positions = int(functions.llama_model_n_ctx_train(self.model))
        self._context = self._open(on_gpu, threads)
        self._batch = functions.llama_batch_init(ROOM_TOKENS, 0, PASS_SEQUENCES)
        weakref.finalize(self, _free, functions, self._batch, self._context, self.model)

    def _open(self, on_gpu: bool, threads: int) -> Any:
        settings = self._functions.llama_context_default_params()
        settings.n_ctx = settings.n_batch = ROOM_TOKENS
        settings.n_ubatch = 512
        settings.n_seq_max = PASS_SEQUENCES
        settings.kv_unified = True
        # Half-precision keys and values move log-probabilities by more than the weights' own rounding does.
        settings.type_k = settings.type_v = self._functions.GGML_TYPE_F32
        settings.flash_attn_type = self._functions.LLAMA_FLASH_ATTN_TYPE_DISABLED
        settings.offload_kqv = on_gpu
        settings.n_threads = settings.n_threads_batch = threads
        context = self._functions.llama_init_from_model(self.model, settings)
        if not context:
            raise ModelError("llama.cpp has no memory for the model's keys and values; close other programs.")
        return context

    def logits(self, asked: Sequence[Asked]) -> list[NDArray[np.float32]]:
        """For each of `asked` its rows, one for every place. [places, vocab]"""
        rows: list[NDArray[np.float32]] = [np.empty(0, dtype=np.float32)] * len(asked)
        for chosen in self._passes(asked):
            trie, paths = Trie(), {}
            for number in chosen:
                paths[number] = trie.add(asked[number].token_ids)
            wanted = sorted({paths[number][place] for number in chosen for place in asked[number].places})
            found = dict(zip(wanted, self._evaluate(trie.nodes, wanted), strict=True))
            for number in chosen:
                rows[number] = np.stack([found[paths[number][place]] for place in asked[number].places])
        return rows

    def _passes(self, asked: Sequence[Asked]) -> Iterator[list[int]]:
        """Histories that share beginnings together, as many as a pass takes; each before its own beginnings, which then
        need no sequence."""
        chosen: list[int] = []
        trie, outputs = Trie(), 0
        for number in sorted(range(len(asked)), key=lambda number: asked[number].token_ids, reverse=True):
            one = asked[number]
            self._require_fitting(one)
            missing = trie.missing(one.token_ids)
            is_full = (
                len(trie.nodes) + missing > PASS_TOKENS
                or (missing > 0 and trie.sequences == PASS_SEQUENCES)
                or (outputs + len(one.places)) * self.vocab_size > PASS_LOGITS
            )
            if chosen and is_full:
                yield chosen
                chosen, trie, outputs = [], Trie(), 0
            trie.add(one.token_ids)
            chosen.append(number)
            outputs += len(one.places)
        if chosen:
            yield chosen

    def _require_fitting(self, one: Asked) -> None:
        if len(one.token_ids) > min(ROOM_TOKENS, self.max_positions):
            raise ModelError(
                f"a history has {len(one.token_ids)} tokens, but the .gguf model takes at most "
                f"{min(ROOM_TOKENS, self.max_positions)}."
            )

    def _evaluate(self, nodes: Sequence[Node], wanted: Sequence[int]) -> Iterator[NDArray[np.float32]]:
        """The logits after each wanted node, by one pass over all nodes."""
        functions, batch, outputs = self._functions, self._batch, set(wanted)
        functions.llama_memory_clear(functions.llama_get_memory(self._context), False)
        batch.n_tokens = len(nodes)
        for place, node in enumerate(nodes):
            batch.token[place], batch.pos[place] = node.token, node.position
            batch.n_seq_id[place] = len(node.sequences)
            for number, sequence in enumerate(node.sequences):
                batch.seq_id[place][number] = sequence
            batch.logits[place] = place in outputs
        code = functions.llama_decode(self._context, batch)
        if code != 0:
            raise ModelError(f"llama.cpp refused a pass of {len(nodes)} tokens (code {code}); this is a fault of rote.")
        for place in wanted:
            pointer = functions.llama_get_logits_ith(self._context, place)
            yield np.ctypeslib.as_array(pointer, shape=(self.vocab_size,)).copy()
