"""Options: declared once, flags and YAML keys alike, checked with one sentence; the identity decides numbers."""

import dataclasses
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.main import get_command

from byrote.cli.main import app
from byrote.errors import ConfigError
from byrote.options import gather, settable_of
from byrote.scan.options import RunConfig
from tests.scan.scans import Command

NAMES = [item.name for item in fields(RunConfig)]
CHANGED: dict[str, Any] = {
    "model": "m",
    "text": ("a.txt", "b, c.txt"),
    "control": ("d.txt",),
    "pairs": ("e.jsonl",),
    "out": "runs/x",
    "revision": "main",
    "unit": "text",
    "prefix_chars": 150,
    "suffix_chars": 120,
    "prefix_tokens": 7,
    "suffix_tokens": 9,
    "stride_chars": 11,
    "whole_documents": True,
    "limit": 13,
    "sample": 17,
    "keep_shared": True,
    "seed": 19,
    "bos": "never",
    "measures": ("near", "greedy"),
    "temperature": 0.5,
    "top_k": None,
    "top_p": 0.9,
    "sweep": ("k=10", "t=0.7+k=40"),
    "beam_width": 3,
    "edit_budget": 2,
    "distance": "none",
    "viability": "published",
    "pin": False,
    "threshold": 0.25,
    "stop_rule": "off",
    "negligible": 1e-6,
    "rank": "screen_score",
    "max_children": 64,
    "screen": "off",
    "screen_floor": 1e-3,
    "screen_share": 0.5,
    "screen_min_windows": 3,
    "keep": 1,
    "greedy": "full",
    "posthoc": ("bleu", "words"),
    "bleu_threshold": 0.5,
    "closure": 4,
    "verify": True,
    "answers": 7,
    "self_check": 8,
    "estimate_share": 0.25,
    "cut_prefix_tokens": 60,
    "cut_suffix_tokens": 70,
    "executor": "ray",
    "workers": 3,
    "gpus_per_worker": 0.5,
    "address": "auto",
    "max_seconds": 60.0,
    "max_evals": 1000,
    "estimate": "all",
    "residual": 10,
    "residual_error": 0.1,
    "refine": 20,
    "device": "cpu",
    "dtype": "float32",
    "slots": 5,
    "batch_windows": 6,
    "windows_per_part": 8,
    "compile": "on",
    "shard": "0/3",
    "min_k": 0.5,
    "reference_model": "n",
    "adapter": "o",
    "tokenizer": "folder",
    "served_model": "served",
    "dialect": "sglang",
    "logprobs": 21,
    "concurrency": 2,
    "ask_twice": 9,
    "prompt": ("chat",),
    "key_variable": "OTHER_KEY",
    "key_over_http": True,
    "requests_per_minute": 30.0,
    "attempts": 4,
    "timeout_seconds": 12.5,
    "max_requests": 1000,
    "max_tokens_total": 2000,
    "policies": ("k=10", "t=0.7+k=40"),
    "passage": (50, 100),
    "passage_roots": 3,
    "engine_args": ("tensor_parallel_size=2",),
}
"""A value other than the default for every option."""


def test_every_option_has_a_value_to_test_it_with() -> None:
    defaults = RunConfig()
    assert sorted(CHANGED) == sorted(NAMES)
    assert all(CHANGED[name] != getattr(defaults, name) for name in NAMES)


def config_from(flags: dict[str, Any], file: Path | None) -> RunConfig:
    (config,) = gather((RunConfig,), flags, file)
    assert isinstance(config, RunConfig)
    return config


def as_flag(name: str, value: Any) -> Any:
    """What typer hands over for a flag: text, except for lists of paths and switches."""
    if isinstance(value, bool):
        return value
    if name in ("text", "control", "pairs"):
        return list(value)
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value)


@pytest.mark.parametrize("name", NAMES)
def test_every_option_is_a_flag_and_a_key_with_the_same_meaning(name: str, tmp_path: Path) -> None:
    value = CHANGED[name]
    expected = dataclasses.replace(RunConfig(), **{name: value})
    plain = list(value) if isinstance(value, tuple) else value
    for key in (name, name.replace("_", "-")):
        file = tmp_path / "scan.yaml"
        file.write_text(yaml.safe_dump({key: plain}), encoding="utf-8")
        assert config_from({}, file) == expected
    assert config_from({name: as_flag(name, value)}, None) == expected


def test_an_option_is_a_flag_or_is_set_by_its_name_and_says_its_type_and_default() -> None:
    scan: Any = get_command(app).commands["scan"]  # type: ignore[attr-defined]
    parameters = {parameter.name: parameter for parameter in scan.params}
    further = {option.name for option in scan.callback.further}
    for option in settable_of(RunConfig):
        assert option.spec.help.endswith(".")
        assert option.default == getattr(RunConfig(), option.name)
        assert (option.name in further) == (option.name not in parameters) == (not option.spec.is_flag)
        if option.spec.is_flag:
            parameter = parameters[option.name]
            assert parameter.opts == ["--" + option.label, *option.spec.aliases]
            assert parameter.default is None, "the default is the configuration's, so that a file can stand between"
            is_needed = option.name in ("model", "text", "out")
            assert (
                parameter.help.startswith(f"{option.spec.help} [required")
                if is_needed
                else parameter.help == option.help
            )
            assert parameter.is_flag or parameter.metavar == option.metavar
    assert len(scan.params) + 1 <= 56, "flags, --help among them"


def test_set_takes_any_option_with_the_sentences_of_flags(byrote: Command, tmp_path: Path) -> None:
    for assigned, words in [
        ("top_kk=3", r"--set has the unknown option top_kk\. Did you mean top_k\?"),
        ("pin", r"set is 'pin'; write --set NAME=VALUE\."),
        ("slots=0", r"slots is 0; it must be at least 1\."),
        ("screen-floor=2", r"screen_floor is 2.0; it must be between 0 and 1\."),
        ("pin=maybe", r"pin is 'maybe'; it must be true or false\."),
    ]:
        outcome = byrote("scan", "--set", assigned, "--model", "m", "--text", "t", "--out", tmp_path / "run")
        assert outcome.code == 2
        assert re.search(words, " ".join(outcome.err.split())), outcome.err
    shown = byrote("scan", "--help-all").out
    assert "Further options" in shown
    assert all(option.name in shown for option in settable_of(RunConfig) if not option.spec.is_flag)
    outcome = byrote("scan", "--slots", "3")
    assert outcome.code == 2
    assert "--set slots=VALUE" in outcome.err


def test_the_groups_of_the_help_are_the_documented_ones() -> None:
    assert {option.spec.group for option in settable_of(RunConfig)} == {
        "text", "policy", "search", "screen", "estimates", "membership", "endpoint", "budget", "output", "machine",
    }  # fmt: skip


@pytest.mark.parametrize("words", ["bos", "distance", "viability", "rank", "stop_rule", "screen", "dtype", "measures"])
def test_choices_come_from_the_type(words: str) -> None:
    (option,) = (entry for entry in settable_of(RunConfig) if entry.name == words)
    assert option.choices
    with pytest.raises(ConfigError, match=rf"'nothing'; choose {', '.join(option.choices)}\.$"):
        RunConfig(**{words: "nothing"})


def test_flags_win_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    file = tmp_path / "scan.yaml"
    file.write_text("top_k: 7\nbeam_width: 3\n", encoding="utf-8")
    config = config_from({"beam_width": "5", "seed": None}, file)
    assert (config.top_k, config.beam_width, config.seed) == (7, 5, 0)


def test_python_gets_the_sentences_of_the_command_line() -> None:
    with pytest.raises(ConfigError, match=r"^top-k is 'many'; it must be a whole number\.$"):
        RunConfig(top_k="many")  # type: ignore[arg-type]
    assert RunConfig(measures="near", text="book.txt").text == ("book.txt",)  # type: ignore[arg-type]


ASKING = {
    "concurrency", "ask_twice", "key_variable", "attempts", "timeout_seconds", "max_requests", "max_tokens_total",
    "key_over_http", "requests_per_minute",
}  # fmt: skip
BUDGETS = {"max_seconds", "max_evals"}
WORKERS = {"executor", "workers", "gpus_per_worker", "address"}
MACHINE = {"compile", "device", "slots", "batch_windows", "windows_per_part", "self_check"}
CANNOT_CHANGE_NUMBERS = MACHINE | ASKING | BUDGETS | WORKERS
KEPT_AS_CONTENT = {
    "out",
    "text",
    "control",
    "pairs",
    "model",
    "reference_model",
    "tokenizer",
    "shard",
    "adapter",
    "engine_args",
    "prompt",
}
"""Where the run is kept; texts, models, adapter and tokenizer enter the identity by their hashes, not by their names, a
shard by a field of its own, and what vLLM computes by among the settings of the model."""


@pytest.mark.parametrize("name", NAMES)
def test_the_identity_leaves_out_only_what_cannot_change_numbers(name: str) -> None:
    before, after = RunConfig(), dataclasses.replace(RunConfig(), **{name: CHANGED[name]})
    is_left_out = name in CANNOT_CHANGE_NUMBERS | KEPT_AS_CONTENT
    assert (before.identity() == after.identity()) == is_left_out


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "prefix_tokens": st.integers(-2, 60),
            "top_k": st.none() | st.integers(-2, 60),
            "top_p": st.none() | st.floats(allow_nan=True),
            "temperature": st.floats(allow_nan=True),
            "threshold": st.floats(allow_nan=True),
            "edit_budget": st.integers(-2, 8),
            "beam_width": st.integers(-2, 30),
            "screen_share": st.floats(allow_nan=True),
            "measures": st.lists(st.sampled_from(["greedy", "verbatim", "near", "nothing"]), max_size=3).map(tuple),
        },
    )
)
def test_a_configuration_is_either_usable_or_refused_with_one_of_our_sentences(options: dict[str, Any]) -> None:
    refusal, config = None, RunConfig()
    try:
        config = RunConfig(**options)
    except ConfigError as error:
        refusal = str(error)
    if refusal is not None:
        assert refusal.endswith(".")
        assert "\n" not in refusal
    assert 0 < config.threshold <= 1
    assert config.prefix_tokens >= 1
    assert config.policy.temperature > 0
    if "near" in config.measures:
        assert config.search_options().beam_width >= 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sweep": ("k=1", "k=2"), "measures": ("near",)}, "sweep is k=1,k=2, .* add verbatim to --measures"),
        ({"greedy": "full", "measures": ("near",)}, "greedy is full, .* add greedy"),
        ({"verify": True, "measures": ("verbatim",)}, "verify is on, .* add near"),
        ({"refine": 5, "measures": ("verbatim",)}, "refine is 5, .* leave refine out"),
        ({"residual": 5}, "residual is about estimates"),
    ],
)
def test_what_would_be_asked_in_vain_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        RunConfig(model="m", out="o", **options).require_places()
    RunConfig(model="m", out="o", measures=("verbatim",)).require_places()


@pytest.mark.parametrize("value", ["0", "-1", "1e3", "auto", "²", "٣", "9" * 5000, "none"])
def test_an_estimate_that_is_no_choice_and_no_number_of_windows_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match=r"choose off, undecided, all or a number of windows\.$"):
        RunConfig(estimate=value)
    assert [RunConfig(estimate=known).estimate for known in ("off", "undecided", "all", "100")][-1] == "100"


def test_a_window_has_two_answers_a_servers_none_and_only_masses_need_them() -> None:
    assert RunConfig().sampled_answers == 2
    assert RunConfig(model="endpoint:http://127.0.0.1:1/v1").sampled_answers == 0
    assert RunConfig(model="endpoint:http://127.0.0.1:1/v1", answers=1).sampled_answers == 1
    assert RunConfig(answers=0).sampled_answers == 0
    assert RunConfig(measures=("greedy", "verbatim")).sampled_answers == 0
    with pytest.raises(ConfigError, match=r"answers is -1; it must be 0 or more\.$"):
        RunConfig(answers=-1)


def test_a_budget_within_which_everything_lies_is_refused() -> None:
    with pytest.raises(ConfigError, match="everything is within 5 edits of a suffix of 5 tokens"):
        RunConfig(suffix_tokens=5, edit_budget=5)
    assert RunConfig(suffix_tokens=5, edit_budget=4).edit_budget == 4
    assert RunConfig(suffix_tokens=5, edit_budget=5, measures=("verbatim",)).edit_budget == 5


@pytest.mark.parametrize(
    "then", [{}, {"estimate": "all", "residual": 5}, {"refine": 5}, {"closure": 5}, {"estimate": "undecided"}]
)
def test_the_cap_on_listed_children_holds_without_top_k_whatever_follows_the_search(then: dict[str, Any]) -> None:
    assert RunConfig().search_options().max_children is None
    options = RunConfig(top_k=None, top_p=0.9, **then).search_options()
    assert options.max_children == 1024
    assert options.record_frontier == (then != {})
