"""Options that several commands share: their defaults and words, declared once. Commands take them with `like`."""

from dataclasses import dataclass

from rote.options.declare import option
from rote.types import BosRule, DtypeName


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """What is measured, under which policy, on which machine."""

    model: str = option("", "Model folder or hub id.", group="text", default_words="")
    revision: str | None = option(None, "Revision of a hub model.", group="text")
    adapter: str | None = option(
        None, "Folder of a PEFT adapter, merged into the model before anything is measured.", group="text", is_path=True
    )
    text: tuple[str, ...] = option(
        (),
        "Target texts: files, folders, globs, URLs (.txt .md .jsonl .parquet), saved datasets; several may follow.",
        group="text",
    )
    out: str = option("", "Run folder to write; an unfinished one is resumed.", group="text", is_path=True)
    prefix_tokens: int = option(50, "Tokens given to the model before each suffix.", group="text", at_least=1)
    suffix_tokens: int = option(50, "Tokens the model would have to reproduce.", group="text", at_least=1)
    stride_chars: int = option(20, "Start a window every this many characters.", group="text", at_least=1)
    whole_documents: bool = option(
        False, "One window per document: its first tokens. Replaces --stride-chars.", group="text"
    )
    limit: int | None = option(
        None, "Measure only N windows: the first of every document, targets and controls alike.", group="text",
        at_least=1, default_words="all",
    )  # fmt: skip
    sample: int | None = option(
        None, "Measure a seeded random sample of N windows, drawn from every document, targets and controls alike.",
        group="text", at_least=1, default_words="all",
    )  # fmt: skip
    seed: int = option(0, "Seed of everything that is drawn.", group="text", at_least=0)
    bos: BosRule = option(
        "auto", "Beginning-of-text token, counted inside the prefix; auto does as the tokenizer.", group="text"
    )
    temperature: float = option(
        1.0, "Temperature of the decoding policy.", group="policy", above=0,
        advice="For greedy decoding use --top-k 1.",
    )  # fmt: skip
    top_k: int | None = option(
        40, "Keep the k most likely tokens; none keeps all.", group="policy", at_least=1,
        advice="Write none for no truncation.",
    )  # fmt: skip
    top_p: float | None = option(
        None, "Keep the smallest set of tokens whose mass reaches this (nucleus).", group="policy", above=0, at_most=1
    )
    device: str = option("auto", "auto, cpu, cuda, cuda:N, or map to spread a model over devices.", group="machine")
    dtype: DtypeName = option("auto", "Number format of the weights.", group="machine")
    batch_windows: int = option(32, "Windows per teacher-forced pass.", group="machine", at_least=1)
    key_variable: str = option(
        "OPENAI_API_KEY", "Environment variable that holds the key; the key itself is never written.", group="endpoint"
    )
    attempts: int = option(6, "Attempts at one request.", group="endpoint", at_least=1)
    timeout_seconds: float = option(
        300.0, "Deadline of one request, from connecting to the last byte.", group="endpoint", above=0
    )
    max_tokens_total: int | None = option(None, "Ceiling in tokens, prompts included.", group="budget", at_least=0)
    max_requests: int | None = option(None, "Ceiling in requests, failed ones included.", group="budget", at_least=0)
