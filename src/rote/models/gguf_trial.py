"""A .gguf file, opened in a process of its own first: llama.cpp ends the whole process over some damaged files.

The trial maps the weights and reads none of them, so it takes about a second whatever the size of the file.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

from rote.errors import ModelError

LONGEST_SECONDS = 120
TEXT = b"A few words, 123 numbers and some \xc3\xbc."


def try_file(path: Path) -> None:
    """Raise a ModelError when llama.cpp does not survive the file. One that it refuses is refused again when loaded."""
    # Without this it would call a debugger to say where it ended.
    environment = os.environ | {"GGML_NO_BACKTRACE": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", __name__, str(path)]
    nothing = subprocess.DEVNULL
    try:
        tried = subprocess.run(
            command, env=environment, stdin=nothing, stdout=nothing, stderr=nothing, timeout=LONGEST_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise _damaged(path, f"takes more than {LONGEST_SECONDS} seconds over it") from error
    if tried.returncode < 0:
        raise _damaged(path, f"ends over it ({signal.Signals(-tried.returncode).name})")


def _damaged(path: Path, finding: str) -> ModelError:
    return ModelError(f"{path} is damaged: llama.cpp {finding}. Get a complete .gguf file of a language model.")


def _open(path: str) -> bool:
    """Whether llama.cpp takes the file; it may also end this process."""
    from rote.models.gguf_trees import library

    functions = library()
    settings = functions.llama_model_default_params()
    settings.n_gpu_layers = 0
    settings.use_extra_bufts = False  # weights stay where they are mapped
    model = functions.llama_model_load_from_file(path.encode(), settings)
    if not model:
        return False
    vocabulary, room = functions.llama_model_get_vocab(model), (functions.llama_token * len(TEXT))()
    functions.llama_tokenize(vocabulary, TEXT, len(TEXT), room, len(room), False, False)
    return True


if __name__ == "__main__":
    sys.exit(0 if _open(sys.argv[1]) else 1)
