"""A judgement of `byrote gate` as the summary of a GitHub job; action.yml runs both."""

from byrote.report.gate import Judgement, Outcome
from byrote.report.summary import markdown_safe
from byrote.report.view import RunView

SIGNS = {Outcome.PASS: "pass", Outcome.FAIL: "**FAIL**", Outcome.CANNOT_TELL: "cannot tell"}


def as_markdown(view: RunView, judgement: Judgement) -> str:
    """A heading, and a row for every rule with the bracket it was judged by."""
    rows = [
        f"| {SIGNS[one.outcome]} | `{markdown_safe(one.rule.name)}` | {one.windows:,} | {one.low:.4g} | "
        f"{one.high:.4g} | {markdown_safe(one.words)} |"
        for one in judgement.findings
    ]
    return "\n".join(
        [
            f"### Memorization gate: {SIGNS[judgement.outcome]}",
            "",
            f"`{markdown_safe(view.model)}`, run `{markdown_safe(view.path.name)}`, "
            f"{judgement.confidence:.0%} confidence",
            "",
            "| outcome | rule | windows | at least | at most | |",
            "| --- | --- | --- | --- | --- | --- |",
            *rows,
            "",
        ]
    )
