"""GGUF files that are cut, damaged, or something else. Each is opened in a process of its own."""

import os
import random
import signal
from functools import cache
from pathlib import Path
from typing import Any

import input_models

from rote.errors import RoteError
from rote.models.gguf import GgufModel

LOADED, REFUSED, OUTSIDE, CRASHED = 10, 11, 12, 13
SECONDS = 20
METADATA_BYTES = 6000


@cache
def whole_file(root: Path) -> bytes:
    from gguf_convert import convert

    convert(input_models.whole_model(root), root / "whole.gguf")
    return (root / "whole.gguf").read_bytes()


def load_file(case: Any) -> None:
    """What loads must give tokens inside the model's vocabulary; what does not is refused in a sentence."""
    path = case.folder / case.rng.choice(["model.gguf", "MODEL.GGUF", "mo del[x].gguf"])
    path.write_bytes(_content(case, case.rng))
    child = os.fork()
    if child == 0:
        os._exit(_opened(path))
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    case.is_refused = ended == REFUSED
    case.expect(ended != OUTSIDE, "a token outside of the model")
    if ended not in (LOADED, REFUSED, OUTSIDE):
        case.findings.append(f"traceback: the process ended with {ended}")


def _opened(path: Path) -> int:
    signal.alarm(SECONDS)
    try:
        model = GgufModel(path)
        (encoding,) = model.encode_batch(["plain words of a text"])
        model.next_logits([encoding.ids[:4] or [0]])
        return LOADED if all(0 <= token < model.vocab_size for token in encoding.ids) else OUTSIDE
    except RoteError:
        return REFUSED
    except BaseException:
        return CRASHED


def _content(case: Any, rng: random.Random) -> bytes:
    content = bytearray(whole_file(case.folder.parent))
    kind = rng.randrange(5)
    case.what = f"kind {kind}"
    if kind == 0:
        return bytes(content[: rng.randrange(len(content))])
    if kind in (1, 2):
        for _ in range(rng.randrange(1, 6)):
            content[rng.randrange(METADATA_BYTES)] = rng.randrange(256)
        return bytes(content)
    return rng.choice([b"", b"GGUF\3\0\0\0"]) + rng.randbytes(rng.randrange(2000))
