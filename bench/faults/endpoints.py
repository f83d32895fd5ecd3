"""A campaign against endpoints: audits and scans of servers that break, lie and attack, resumed until they recover.

    python bench/faults/endpoints.py [--cases 600] [--scans 600] [--seed 0]

Every case is an audit of an invented book over a loopback server whose first answers are drawn from the acts below;
then it is honest. The audit is run again until it ends. Counted are cases in which: the audit could not be finished
once the server was honest (wedged); an error was no sentence of ours (traceback); a ceiling was passed by more than the
one request in flight; the key was written, or sent elsewhere; a finished audit changed when it was run again; or a
request was not given up in time. Everything is written below a temporary folder.

Every scan opens a served model again and again: the first openings meet one odd answer each, or end at once in the
middle of a request, and then the server is honest. Counted are the same findings, and cases in which the count in the
run folder is not what arrived at the server.
"""

import argparse
import gzip
import random
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parent.parent), str(HERE.parent.parent.parent)]

import environment  # noqa: E402, I001
from byrote.errors import BudgetError, ByroteError  # noqa: E402
from byrote.models.served.retries import RetryPolicy  # noqa: E402
from byrote.longform.journal import Ceilings  # noqa: E402
from byrote.longform.loop import Stop  # noqa: E402
from byrote.longform.run import AuditResult, AuditRun, run_audit  # noqa: E402
from byrote.models.served.chat import ChatResponder  # noqa: E402
from byrote.models.served.model import connect  # noqa: E402
from byrote.policy import Policy  # noqa: E402
from byrote.store.journal import RequestCountFile  # noqa: E402
from byrote.store.folder import RunFolder  # noqa: E402
from tests.longform.audits import KEY, invented_book, make_run  # noqa: E402
from tests.loopback.brains import KnowsByHeart  # noqa: E402
from tests.loopback.hostile import (  # noqa: E402
    GZIP_BOMB,
    Act,
    HostileServer,
    completion,
    endless,
    events,
    raw,
    sent,
    silent,
    trickling,
)
from tests.loopback.logprobs import Habits  # noqa: E402
from tests.loopback.odd import spoiled  # noqa: E402
from tests.models.served import DIALECTS, quick, serving, word_folder  # noqa: E402
from tests.table import TableModel  # noqa: E402

BOOK = invented_book(220)
TIMEOUT_SECONDS = 0.4
MOST_RUNS = 12
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@dataclass
class Case:
    """One audit: what its server does, and what was seen."""

    seed: int
    findings: list[str] = field(default_factory=list)
    acts: list[str] = field(default_factory=list)
    works: list[int] = field(default_factory=list)
    """Tokens (words) of each request and of what was answered to it."""
    runs: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.knows = KnowsByHeart(BOOK)
        self.stream = self.rng.random() < 0.4
        self.hostile_requests = self.rng.randint(1, 8)
        self.ceilings = Ceilings(
            max_tokens_total=self.rng.choice([None, None, 1500, 4000]),
            max_requests=self.rng.choice([None, None, 6, 20]),
        )

    def choose(self, number: int, body: Mapping[str, Any]) -> Act:
        (text,) = self.knows(body)
        is_hostile = number < self.hostile_requests and self.rng.random() < 0.8
        name = self.rng.choice(sorted(ACTS)) if is_hostile else "honest"
        self.acts.append(name)
        prompt = sum(len(message["content"].split()) for message in body["messages"])
        if name in ("flood", "flood_uncounted"):
            text = f"{text} " * self.rng.choice([200, 10_000])
        self.works.append(prompt + len(text.split()))
        usage = {"prompt_tokens": prompt, "completion_tokens": len(text.split())}
        return ACTS[name](self, text, usage) if name in ACTS else self.answer(text, usage)

    def answer(self, text: str, usage: Any = "absent", *, finish_reason: str = "stop") -> Act:
        if not self.stream:
            return sent(completion(text, usage=usage, finish_reason=finish_reason))
        halves = [place for place in range(1, len(text)) if "\ud800" <= text[place - 1] <= "\udbff"]
        cut = self.rng.choice(halves or range(len(text) + 1))
        pieces = [{"index": 0, "delta": {"content": piece}} for piece in (text[:cut], text[cut:])]
        closing: dict[str, Any] = {"choices": [{"index": 0, "delta": {}, "finish_reason": finish_reason}]}
        if usage != "absent":
            closing["usage"] = usage
        return sent(events(*({"choices": [piece]} for piece in pieces), closing))


def _usage(self: Case, text: str, usage: dict[str, int]) -> Act:
    nonsense = [
        None, [], "many", {}, {"prompt_tokens": 1}, {"prompt_tokens": -1, "completion_tokens": -1},
        {"prompt_tokens": 10**40, "completion_tokens": 10**40}, {"prompt_tokens": 0, "completion_tokens": 0},
        {"prompt_tokens": 1.5, "completion_tokens": "2"}, {"prompt_tokens": float("nan"), "completion_tokens": True},
        usage | {"prompt_tokens_details": {"cached_tokens": 10**12}}, usage | {"prompt_tokens_details": 7},
    ]  # fmt: skip
    return self.answer(text, self.rng.choice(nonsense))


def _json(self: Case, text: str, usage: dict[str, int]) -> Act:
    bodies = [
        b"", b"null", b"[]", b"7", b'"text"', b"{", b"[" * 50_000, b'{"choices": ' + b"9" * 6000 + b"}", b"\xff\xfe",
        completion("", choices=[]), completion("", choices={}), completion("", choices=[None]), completion(None),
        completion({"content": {"a": 1}}), completion({"content": [1]}), completion("", choices=[{"index": "x"}]),
        b'{"error": {"message": "late"}}', b"data: {\n\n", b"data: [DONE]\n\n", b"<html>",
    ]  # fmt: skip
    return sent(self.rng.choice(bodies))


def _text(self: Case, text: str, usage: dict[str, int]) -> Act:
    odd = [
        "\ud800",
        "\ud83d\ude00",
        "\x00",
        "\x1b[2J",
        "\u202e",
        "\u2028",
        "\ufeff",
        "e\u0301" * 50,
        "_" * 500,
        ". " * 300,
    ]
    return self.answer(f"{text} {self.rng.choice(odd)}{self.rng.choice(odd)} ", usage)


def _status(self: Case, text: str, usage: dict[str, int]) -> Act:
    status = self.rng.choice(
        [204, 206, 400, 401, 402, 403, 404, 408, 409, 413, 418, 422, 429, 500, 502, 503, 504, 529, 999]
    )
    wait = self.rng.choice(
        ["0", "0.01", "-1", "nan", "inf", "1e400", "soon", "Mon, 01 Jan 0001 00:00:00 GMT", "9" * 400]
    )
    said = self.rng.choice(
        [b"", b"no", b'{"error": {"message": "key ' + KEY.encode() + b'"}}', b'{"error": null}', b"[" * 9999]
    )
    return sent(said, status=f"{status} Odd", headers={"Retry-After": wait})


def _wire(self: Case, text: str, usage: dict[str, int]) -> Act:
    whole = completion(text, usage=usage)
    return self.rng.choice(
        [
            raw(b""), raw(b"garbage\r\n\r\n"), raw(HEAD), raw(HEAD + b"X: " + b"y" * 200_000),
            sent(whole[: len(whole) // 2], headers={"Content-Length": str(len(whole))}),
            sent(whole, headers={"Content-Length": "-3"}), sent(whole, headers={"Content-Length": "1e3"}),
            raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n"),
            sent(gzip.compress(whole)[:-4], headers={"Content-Encoding": "gzip"}),
            sent(whole, headers={"Content-Encoding": "br, gzip"}),
            sent(whole, headers={"Set-Cookie": "a=" + "b" * 5000}),
        ]
    )  # fmt: skip


ACTS = {
    "usage": _usage,
    "json": _json,
    "text": _text,
    "status": _status,
    "wire": _wire,
    "silent": lambda self, text, usage: silent,
    "trickle": lambda self, text, usage: trickling(HEAD, b"X: y\r\n"),
    "trickle_body": lambda self, text, usage: trickling(HEAD + b"Content-Length: 99999\r\n\r\n{", b" "),
    "endless": lambda self, text, usage: endless(HEAD + b"Connection: close\r\n\r\n", b" " * 65536),
    "bomb": lambda self, text, usage: sent(GZIP_BOMB, headers={"Content-Encoding": "gzip"}),
    "packed": lambda self, text, usage: sent(
        gzip.compress(completion(text, usage=usage)), headers={"Content-Encoding": "gzip"}
    ),
    "redirect": lambda self, text, usage: sent(
        b"", status="307 Elsewhere", headers={"Location": f"{self.elsewhere}/chat/completions"}
    ),
    "filter": lambda self, text, usage: self.answer(text, usage, finish_reason="content_filter"),
    "flood": lambda self, text, usage: self.answer(text, usage),
    "flood_uncounted": lambda self, text, usage: self.answer(text),
}


def run_case(seed: int, folder: Path) -> Case:
    case = Case(seed)
    out = folder / f"case-{seed}"
    run = make_run(
        BOOK,
        out,
        options={"max_turns": 10, "empty_wait_seconds": 0.0},
        ceilings=case.ceilings,
        retry=RetryPolicy(attempts=3, base_seconds=0.0, longest_wait_seconds=0.05),
    )
    with HostileServer(lambda number, body: sent(completion("gotcha"))) as elsewhere:
        case.elsewhere = elsewhere.url  # type: ignore[attr-defined]
        with HostileServer(case.choose) as server:
            result = _finished(case, run, server)
            if result is not None:
                _check_finished(case, run, server, result)
        if elsewhere.bodies:
            case.findings.append("key sent elsewhere")
    _check_ceilings(case)
    if any(KEY.encode() in path.read_bytes() for path in out.rglob("*") if path.is_file()):
        case.findings.append("key written")
    return case


def _finished(case: Case, run: AuditRun, server: HostileServer) -> AuditResult | None:
    """The audit's result, after as many runs as it takes."""
    while case.runs < MOST_RUNS:
        was_honest = len(server.bodies) >= case.hostile_requests
        try:
            return _audited(case, run, server)
        except BudgetError:
            return None
        except ByroteError as error:
            if "\n" in str(error) or KEY in str(error):
                case.findings.append("sentence")
            if was_honest:
                case.findings.append(f"wedged: {error}")
                return None
        except Exception as error:
            case.findings.append(f"traceback: {error!r}")
            return None
    case.findings.append("wedged: never ends")
    return None


def _audited(case: Case, run: AuditRun, server: HostileServer) -> AuditResult:
    case.runs += 1
    sent_before, started = len(server.bodies), time.monotonic()
    responder = ChatResponder(server.url, "hostile", key=KEY, stream=case.stream, timeout_seconds=TIMEOUT_SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is left out of a flood is said
            return run_audit(run, responder)
    finally:
        responder.close()
        requests = len(server.bodies) - sent_before
        if time.monotonic() - started > 2.0 + requests * (TIMEOUT_SECONDS + 1.0):
            case.findings.append("hang")


def _check_finished(case: Case, run: AuditRun, server: HostileServer, result: AuditResult) -> None:
    stops = {section.stop for trial in result.trials for section in trial.sections}
    if stops & {Stop.REJECTED, Stop.CEILING}:
        return  # these go on when they are run again: that is what a ceiling is raised for
    asked = len(server.bodies)
    again = _audited(case, run, server)
    if (again.trials, len(server.bodies)) != (result.trials, asked):
        case.findings.append("changed when run again")


def _check_ceilings(case: Case) -> None:
    requests, tokens = case.ceilings.max_requests, case.ceilings.max_tokens_total
    if requests is not None and len(case.works) > requests:
        case.findings.append("ceiling of requests passed")
    if tokens is not None and sum(case.works) - max(case.works, default=0) > tokens:
        case.findings.append("ceiling of tokens passed by more than one request")


TABLE = TableModel.random(5, vocab_size=9)
HOSTILE_OPENINGS = 5


class Killed(BaseException):
    """An opening ends here, as if its process had been killed: nothing is tidied up but what the kernel closes."""


def run_scan(seed: int, folder: Path) -> list[str]:
    """What is wrong with the openings of one run of a served model."""
    rng, findings = random.Random(seed), list[str]()
    ceiling, place = rng.choice([4, 10, 25, 60]), RunFolder(folder / f"scan-{seed}")
    policy, tokenizer = Policy(1.0, 4), str(word_folder(folder, TABLE.vocab_size))
    answers, chosen = 0, 0

    def spoil(path: str, content: bytes) -> bytes:
        nonlocal answers
        answers += 1
        return spoiled(content, rng, KEY)[1] if answers == chosen else content

    with serving(TABLE, Habits(dialect=rng.choice(DIALECTS)), spoil=spoil) as server:
        for opening in range(HOSTILE_OPENINGS + 1):
            is_honest = opening == HOSTILE_OPENINGS
            answers, chosen = 0, 0 if is_honest else rng.randint(1, 8)
            sent = RequestCountFile.open(place)
            killed_at = rng.randint(1, 8) if not is_honest and rng.random() < 0.4 else None
            try:
                model = connect(
                    f"endpoint:{server.url}",
                    key=KEY,
                    policy=policy,
                    tokenizer=tokenizer,
                    limits=quick(max_requests=ceiling),
                    sent=sent if killed_at is None else _Dying(sent, killed_at),
                )
                with closing(model):
                    model.next_logits([[1, 2], [3, 4]])
            except (BudgetError, Killed):
                pass
            except ByroteError as error:
                if KEY in str(error) or not str(error).isprintable():
                    findings.append(f"sentence: {error}")
                if is_honest:
                    findings.append(f"wedged: {error}")
            except Exception as error:
                findings.append(f"traceback: {error!r}")
            finally:
                sent.close()
        counted = RequestCountFile.open(place)
        counted.close()
        if server.seen.requests > ceiling:
            findings.append("ceiling of requests passed")
        if not server.seen.requests <= counted.requests <= ceiling:
            findings.append("count is not what was sent")
    return findings


class _Dying:
    """Counts, and ends the opening right after a count that is on the disk."""

    def __init__(self, sent: RequestCountFile, moment: int) -> None:
        self._sent, self._moment = sent, moment

    @property
    def requests(self) -> int:
        return self._sent.requests

    @property
    def tokens(self) -> int:
        return self._sent.tokens

    def add(self, *, tokens: int) -> None:
        self._sent.add(tokens=tokens)
        self._moment -= 1
        if not self._moment:
            raise Killed

    def close(self) -> None:
        self._sent.close()


def campaign(cases: int, seed: int, scans: int = 0) -> dict[str, Any]:
    acts: Counter[str] = Counter()
    findings: Counter[str] = Counter()
    examples: list[str] = []
    runs = requests = 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(seed, seed + cases):
            case = run_case(number, Path(folder))
            acts.update(case.acts)
            findings.update(finding.split(":")[0] for finding in case.findings)
            examples += [f"seed {number}: {finding}" for finding in case.findings]
            runs, requests = runs + case.runs, requests + len(case.works)
        for number in range(seed, seed + scans):
            found = run_scan(number, Path(folder))
            findings.update(finding.split(":")[0] for finding in found)
            examples += [f"scan, seed {number}: {finding}" for finding in found]
    return {
        "cases": cases,
        "scans": scans,
        "seed": seed,
        "runs": runs,
        "requests": requests,
        "hostile_requests": requests - acts["honest"],
        "acts": dict(sorted(acts.items())),
        "findings": dict(findings),
        "examples": examples[:20],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=600)
    parser.add_argument("--scans", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    results = campaign(arguments.cases, arguments.seed, arguments.scans)
    print(results)
    print(environment.save("faults_endpoints", results))


if __name__ == "__main__":
    main()
