"""A gate's judgement for machines: JSON, and JUnit as continuous integration shows it."""

import json
from typing import Any
from xml.etree import ElementTree

from rote.report.gate import Finding, Judgement, Outcome
from rote.report.view import RunView


def as_json(view: RunView, judgement: Judgement, *, baseline: RunView | None = None) -> str:
    """Everything that was judged, with the brackets it rests on."""
    shown: dict[str, Any] = {
        "run": str(view.path),
        "model": view.model,
        "baseline": None if baseline is None else str(baseline.path),
        "threshold": view.threshold,
        "edit_budget": view.population.edit_budget,
        "confidence": judgement.confidence,
        "outcome": judgement.outcome.value,
        "rules": [_rule(finding) for finding in judgement.findings],
    }
    return json.dumps(shown, indent=2, ensure_ascii=False)


def _rule(finding: Finding) -> dict[str, Any]:
    rule = finding.rule
    return {
        "rule": rule.name,
        "criterion": rule.criterion.value,
        "group": None if rule.grouping is None else f"{rule.grouping}:{rule.group}",
        "limit": rule.limit,
        "outcome": finding.outcome.value,
        "low": finding.low,
        "high": finding.high,
        "windows": finding.windows,
        "words": finding.words,
    }


def as_junit(view: RunView, judgement: Judgement) -> bytes:
    """One test case a rule: a failure where it fails, an error where it cannot be told."""
    counts = [sum(finding.outcome is outcome for finding in judgement.findings) for outcome in Outcome]
    suite = ElementTree.Element(
        "testsuite",
        name=f"rote gate {view.model}",
        tests=str(len(judgement.findings)),
        failures=str(counts[1]),
        errors=str(counts[2]),
    )
    for finding in judgement.findings:
        case = ElementTree.SubElement(suite, "testcase", classname="rote.gate", name=finding.rule.name)
        if finding.outcome is not Outcome.PASS:
            kind = "failure" if finding.outcome is Outcome.FAIL else "error"
            ElementTree.SubElement(case, kind, message=finding.words, type=finding.outcome.value)
        ElementTree.SubElement(case, "system-out").text = finding.words
    ElementTree.indent(suite)
    written: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return written + b"\n"
