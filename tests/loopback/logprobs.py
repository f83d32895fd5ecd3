"""A server on the loopback interface that tells log-probabilities of any causal model, in the shapes of vLLM, SGLang
and llama.cpp, with the limits, traps and faults of such servers on demand."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch

from byrote.models.base import CausalModel
from tests.loopback.base import Loopback
from tests.loopback.server import STATUS, Fault

Listed = list[tuple[int, float]]
Pieces = Callable[[str], list[tuple[int, str]]]
"""A text as tokens, each with the characters it stands for."""


@dataclass
class Habits:
    """How a server behaves. `shift` moves every log-probability but the first by so much, by the prompts in a request:
    numbers that depend on what else is in the batch."""

    dialect: str = "vllm"
    cap: int | None = None
    has_text_keys: bool = False
    knows_prompt_logprobs: bool = True
    tells_a_place_too_late: bool = False
    """`prompt_logprobs` in the right shape, each list that of the next place."""
    has_tokenize: bool = True
    owner: str | None = None
    names: Sequence[str] = ("table",)
    shift: Callable[[int], float] = lambda prompts: 0.0
    retry_after: str = "0"
    samples_parts_of_characters: bool = False
    """As llama-server: tokens that are no whole character are sampled, unless a letter is asked for."""
    adds_tokens: int = 0
    """Tokens that the server puts before every prompt, and counts."""


@dataclass
class Seen:
    """What arrived: all `requests`, `bodies` of those for probabilities, `prompts` of those that were answered."""

    requests: int = 0
    bodies: list[dict[str, Any]] = field(default_factory=list)
    prompts: list[tuple[int, ...]] = field(default_factory=list)
    authorisations: set[str] = field(default_factory=set)
    most_at_once: int = 0


class LogprobServer(Loopback):
    """`faults[n]` is what the n-th request for probabilities (from 0) suffers."""

    def __init__(
        self,
        model: CausalModel,
        tokenize: Callable[[str], list[int]],
        habits: Habits | None = None,
        faults: Mapping[int, Fault] | None = None,
        *,
        port: int = 0,
        pieces: Pieces | None = None,
        decode: Callable[[list[int]], str] | None = None,
        spoil: Callable[[str, bytes], bytes] = lambda path, content: content,
    ) -> None:
        """`spoil` makes what is sent of the path that was asked and a whole answer."""
        self.spoil = spoil
        self.pieces, self.decode = pieces, decode
        self.model, self.tokenize, self.habits = model, tokenize, habits or Habits()
        self.faults, self.seen = dict(faults or {}), Seen()
        self._at_once = 0
        super().__init__(_Http(("127.0.0.1", port), _handler(self)), path="")

    def models(self) -> dict[str, Any]:
        owner = self.habits.owner or self.habits.dialect
        entries: list[dict[str, Any]] = [
            {"id": name, "object": "model", "owned_by": owner} for name in self.habits.names
        ]
        for entry in entries:
            entry |= {"meta": {"n_vocab": self.model.vocab_size, "n_ctx": 4096}} if owner == "llamacpp" else {}
        return {"object": "list", "data": entries}

    def admit(self, body: dict[str, Any]) -> Fault | None:
        with self.lock:
            self.seen.bodies.append(body)
            self._at_once += 1
            self.seen.most_at_once = max(self.seen.most_at_once, self._at_once)
            return self.faults.get(len(self.seen.bodies) - 1)

    def leave(self) -> None:
        with self.lock:
            self._at_once -= 1

    def work(self, body: dict[str, Any]) -> Any:
        with self.lock:  # one model, many threads
            answer = {"vllm": self._vllm, "sglang": self._sglang, "llamacpp": self._llamacpp}[self.habits.dialect](body)
            prompts = body["input_ids"] if self.habits.dialect == "sglang" else body["prompt"]
            self.seen.prompts += [tuple(prompt) for prompt in prompts]
            return answer

    def _lists(self, prompt: list[int], count: int, first: int, prompts: int) -> list[Listed]:
        """The `count` most likely tokens after each place of the prompt from `first` on."""
        histories = [prompt[: place + 1] for place in range(first, len(prompt))]
        logits = torch.cat([self.model.next_logits([history]) for history in histories])
        values = logits.double().log_softmax(-1)
        order = values.sort(dim=-1, descending=True, stable=True).indices[:, :count]
        shift = self.habits.shift(prompts)
        return [
            [(token, float(row[token]) - (shift if place else 0.0)) for place, token in enumerate(tokens)]
            for row, tokens in zip(values, order.tolist(), strict=True)
        ]

    def _vllm(self, body: dict[str, Any]) -> dict[str, Any]:
        count = body["logprobs"]
        choices = []
        for index, prompt in enumerate(body["prompt"]):
            wants_prompt = "prompt_logprobs" in body and self.habits.knows_prompt_logprobs
            first = 0 if wants_prompt else len(prompt) - 1
            lists = self._lists(prompt, count, first, len(body["prompt"]))
            # As vLLM: the token that was sampled is there too, whatever its rank; here the last one.
            lists[-1] += self._lists(prompt, self.model.vocab_size, len(prompt) - 1, 1)[0][-1:]
            choice: dict[str, Any] = {
                "index": index,
                "text": "x",
                "finish_reason": "length",
                "logprobs": {"text_offset": [0], "token_logprobs": [0.0], "tokens": ["x"]},
            }
            choice["logprobs"]["top_logprobs"] = [self._keyed(lists[-1])]
            if wants_prompt:
                told = lists[1:] if self.habits.tells_a_place_too_late else lists[:-1]
                choice["prompt_logprobs"] = [None, *(self._by_id(prompt, at, one) for at, one in enumerate(told))]
            choices.append(choice)
        # Order is no promise of the protocol; the index is.
        sent = sum(len(prompt) + self.habits.adds_tokens for prompt in body["prompt"])
        usage = {"prompt_tokens": sent, "completion_tokens": len(choices), "total_tokens": sent + len(choices)}
        named = {"id": "cmpl", "object": "text_completion", "model": body["model"]}
        return {**named, "choices": choices[::-1], "usage": usage}

    def _keyed(self, listed: Listed) -> dict[str, float]:
        key = "word" if self.habits.has_text_keys else "token_id:"
        return {f"{key}{token}": max(value, -9999.0) for token, value in listed}

    def _by_id(self, prompt: list[int], place: int, listed: Listed) -> dict[str, Any]:
        """As vLLM: the token that came is there too, whatever its rank."""
        own = prompt[place + 1]
        (whole,) = self._lists(prompt[: place + 1], self.model.vocab_size, place, 1)
        known = dict(listed) | {own: dict(whole)[own]}
        return {str(token): {"logprob": value, "rank": 1, "decoded_token": "x"} for token, value in known.items()}

    def _sglang(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        count = body["top_logprobs_num"]
        answers = []
        for prompt, start in zip(body["input_ids"], body["logprob_start_len"], strict=True):
            begin = len(prompt) - 1 if start == -1 else start
            lists = self._lists(prompt, count, begin, len(body["input_ids"]))
            triples = [[[value, token, None] for token, value in listed] for listed in lists]
            counted = len(prompt) + self.habits.adds_tokens
            meta: dict[str, Any] = {"prompt_tokens": counted, "output_top_logprobs": triples[-1:]}
            if start != -1:
                meta["input_token_logprobs"] = [
                    [None if at == begin else -1.0, prompt[at], None] for at in range(begin, len(prompt))
                ]
                meta["input_top_logprobs"] = [None, *triples[:-1]]
            answers.append({"text": "x", "meta_info": meta})
        return answers

    def _llamacpp(self, body: dict[str, Any]) -> Any:
        """As llama-server 0.5 answers: one prompt without a list around it, and no probabilities at all where the
        token that was sampled is only part of a character."""
        asked = list(enumerate(body["prompt"]))
        answers = [self._llamacpp_one(index, prompt, body) for index, prompt in asked]
        return answers[0] if len(answers) == 1 else answers

    def _llamacpp_one(self, index: int, prompt: list[int], body: dict[str, Any]) -> dict[str, Any]:
        (listed,) = self._lists(prompt, body["n_probs"], len(prompt) - 1, len(body["prompt"]))
        answer: dict[str, Any] = {
            "index": index,
            "content": "a",
            "tokens": [],
            "id_slot": 0,
            "stop": True,
            "model": "table",
            "tokens_predicted": 1,
            "tokens_evaluated": len(prompt) + self.habits.adds_tokens,
            "prompt": "x",
            "has_new_line": False,
            "truncated": False,
            "stop_type": "limit",
            "stopping_word": "",
            "tokens_cached": len(prompt),
        }
        if self.habits.has_text_keys:
            probs = [{"tok_str": "x", "prob": 0.5} for _ in listed]
            return answer | {"completion_probabilities": [{"content": "x", "probs": probs}]}
        if self.habits.samples_parts_of_characters and not body.get("logit_bias"):
            return answer | {"content": "\ufffd"}
        top = [{"id": token, "token": "x", "bytes": [120], "logprob": value} for token, value in listed]
        return answer | {"completion_probabilities": [{**top[-1], "top_logprobs": top}]}


class SmallServer(LogprobServer):
    """Answers with `crowded` when more than `room` requests are under way, and is out of memory when the prompts inside
    of which log-probabilities are wanted have more than `places` tokens."""

    room, places, refused, turned_away = 2, 10**9, 0, 0
    crowded = Fault.SERVER_ERROR

    def admit(self, body: dict[str, Any]) -> Fault | None:
        fault = super().admit(body)
        with self.lock:
            is_crowded = self._at_once > self.room
            inside = sum(map(len, body["prompt"])) if "prompt_logprobs" in body else 0
            self.turned_away += is_crowded
            self.refused += is_crowded or inside > self.places
        return self.crowded if is_crowded else Fault.OUT_OF_MEMORY if inside > self.places else fault


def small(server: LogprobServer) -> SmallServer:
    server.__class__ = SmallServer
    assert isinstance(server, SmallServer)
    return server


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is what some tests wait for."""


def _handler(server: LogprobServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        is_counted = False

        def parse_request(self) -> bool:
            is_request = super().parse_request()
            with server.lock:
                server.seen.requests += is_request
            return is_request

        def do_GET(self) -> None:
            server.seen.authorisations.add(self.headers.get("Authorization", ""))
            known = {"/v1/models": server.models(), "/props": {"eos_token": "", "total_slots": 1}}
            self.send(200, known[self.path]) if self.path in known else self.send(404, {})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/tokenize" and server.habits.has_tokenize:
                text = body["content"] if server.habits.dialect == "llamacpp" else body["prompt"]
                if body.get("with_pieces") and server.pieces is not None:
                    found = [{"id": token, "piece": piece} for token, piece in server.pieces(text)]
                    self.send(200, {"tokens": found})
                else:
                    self.send(200, {"tokens": server.tokenize(text)})
            elif self.path == "/detokenize" and server.decode is not None:
                self.send(200, {"content": server.decode(body["tokens"])})
            elif self.path in ("/v1/completions", "/generate", "/completion"):
                fault, self.is_counted = server.admit(body), True
                try:
                    self.answer(body, fault)
                finally:
                    self.leave()
            else:
                self.send(404, {"error": {"message": "Not Found"}})

        def leave(self) -> None:
            """Counted out before the answer is sent: a client that has it may begin its next request at once."""
            if self.is_counted:
                self.is_counted = False
                server.leave()

        def answer(self, body: dict[str, Any], fault: Fault | None) -> None:
            asked = body.get("logprobs", 0)
            if fault is Fault.SLOW:
                server.closing.wait(30)
            if fault in (Fault.SLOW, Fault.DROPPED):
                self.close_connection = True
            elif fault in STATUS:
                said = f"bad {self.headers['Authorization']}" if fault is Fault.ECHO_KEY else f"fault: {fault}"
                headers = {"Retry-After": server.habits.retry_after} if fault is Fault.RATE_LIMIT else {}
                self.send(STATUS[fault], {"error": {"message": said}}, headers)
            elif server.habits.cap is not None and asked > server.habits.cap:
                said = f"Requested sample logprobs of {asked}, which is greater than max allowed: {server.habits.cap}"
                self.send(400, {"error": {"message": said}})
            else:
                self.send(200, server.work(body), cut=fault is Fault.TRUNCATED, is_json=fault is not Fault.NOT_JSON)

        def send(
            self,
            status: int,
            content: Any,
            headers: Mapping[str, str] | None = None,
            *,
            cut: bool = False,
            is_json: bool = True,
        ) -> None:
            written = json.dumps(content).encode() if is_json else b"this is not JSON"
            written = server.spoil(self.path, written) if status == 200 else written
            self.leave()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(written)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(written[: len(written) // 2] if cut else written)
            self.close_connection = cut

        def log_message(self, *arguments: object) -> None:
            """Quiet."""

    return Handler
