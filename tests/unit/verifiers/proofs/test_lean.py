"""Lean: what the fence refuses, what Lean's words mean, and servers that are slow, broken or lie."""

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from groupwise.config import parse
from groupwise.errors import ConfigError, VerifierError
from groupwise.sandbox.base import Closing, RunResult, Status
from groupwise.types import Outcome, Problem
from groupwise.verifiers import Request, VerifierConfig, make_verifier
from groupwise.verifiers.base import Finding
from groupwise.verifiers.proofs import lean
from groupwise.verifiers.proofs.base import LeanConfig, RuleError
from groupwise.verifiers.proofs.lean import LeanProgram, LeanVerifier, Message, Reply, complete

HEADER = "import Mathlib\nset_option maxHeartbeats 0\n"
STATEMENT = "theorem two (x : Nat)\n  (h : x = 2) : x + x = 4 := by"
PROBLEM = Problem("p", "q", "", data={"statement": STATEMENT, "header": HEADER})
CLEAN = "'two' depends on axioms: [propext,\n Classical.choice,\n Quot.sound]"


def boxed(proof: str) -> str:
    return "<think></think>\\boxed{\n" + proof + "\n}"


@pytest.mark.parametrize(
    ("proof", "tactics"),
    [
        ("  subst h\n  rfl", "  subst h\n  rfl"), ("subst h -- sorry\nrfl", "subst h \nrfl"),
        ("/- axiom /- nested -/ -/subst h\nrfl", "subst h\nrfl"),
        (f"{STATEMENT}\n  subst h\n  rfl", "  subst h\n  rfl"),
        (f"{HEADER}\n-- first\n{STATEMENT}\n  omega", "  omega"),
        ("theorem two (x : Nat) (h : x = 2) :\n x + x = 4 := by omega", "omega"), ('"--" ; sorry', '"'),
        ("by\n  omega", "  omega"),
        ("have hend : 1 = 1 := rfl\nsimp only [List.prefix_append, Finset.sum_const]", None),
        ("calc #s = 1 := h\n  _ = 1 := rfl", None),
    ],
)  # fmt: skip
def test_tactics_pass_the_fence(proof: str, tactics: str | None) -> None:
    sent = complete(HEADER, STATEMENT, proof)
    assert sent == f"{HEADER}\n{STATEMENT}\n{proof if tactics is None else tactics}\n"


def test_hostile_texts_take_no_time() -> None:
    began = time.process_time()
    for flood in ("--\n" * 6000, "/-" * 10_000, "/--/" * 5000, "-- " * 6000, " " * 20_000, "by " * 6000, "«" * 20_000):
        with suppress(RuleError):
            complete(HEADER, STATEMENT, flood)
    assert time.process_time() - began < 0.5


def test_a_statement_without_by_gets_one() -> None:
    assert complete("", "theorem a : True :=", "trivial") == "\n\ntheorem a : True := by\ntrivial\n"


@pytest.mark.parametrize(
    "proof",
    [
        "sorry", "exact sorryAx _", "native_decide", "exact Lean.ofReduceBool a b c", "exact «sorry»",
        "run_tac pure ()", "exact (by_elab pure x)", "set_option debug.skipKernelTC true in omega", "omega /- open",
        "/- -/ sorry", "/-- /- -/ -/ sorry", "-- ok\nsorry", '"/-" ; sorry ; "-/"\nsorry',
        "theorem two : True := by trivial", "theorem two (x : Nat) (h : x = 2) : x + x = x + x := by rfl",
    ],
)  # fmt: skip
def test_tricks_do_not_pass_the_fence(proof: str) -> None:
    with pytest.raises(RuleError):
        complete(HEADER, STATEMENT, proof)


@pytest.mark.parametrize(
    "command",
    [
        "axiom cheat : False", "theorem two2 : True := by simp", 'macro "x" : tactic => `(tactic| skip)',
        "end\nopen Lean", 'elab "x" : tactic => pure ()', "#print axioms two", "#eval 1", 'local notation "a" => 1',
        'syntax "x" : term', "@[implemented_by f] def g := 1", "unsafe def f := 1", "attribute [simp] two",
        "instance : X := y", "namespace A",
    ],
)  # fmt: skip
def test_commands_do_not_pass_the_fence(command: str) -> None:
    for proof in (f"omega\n\n{command}", f"  omega\n  {command}\n  omega"):
        with pytest.raises(RuleError):
            complete(HEADER, STATEMENT, proof)


class Scripted(Closing):
    """A Lean that knows the two controls and says what it is told about everything else."""

    def __init__(self, reply: Reply) -> None:
        self.reply, self.sources = reply, list[str]()

    def compile_many(self, sources: Sequence[str]) -> list[Reply]:
        self.sources += sources
        return [controls(source) or self.reply for source in sources]


def controls(source: str) -> Reply | None:
    if "groupwise_control : 1 + 1 = 3" in source:
        return (Message(True, "the rfl tactic failed"),)
    if "groupwise_control : 1 + 1 = 2" in source:
        return (Message(False, "'groupwise_control' does not depend on any axioms"),)
    return None


@pytest.mark.parametrize(
    ("reply", "outcome", "evidence"),
    [
        ((Message(False, CLEAN),), "correct", "no axioms"),
        ((Message(False, "'two' does not depend on any axioms"),), "correct", ""),
        ((Message(False, "Try this: rfl"), Message(False, CLEAN)), "correct", ""),
        ((Message(True, "unsolved goals\nx"), Message(False, CLEAN)), "wrong", "Lean: unsolved goals x"),
        ((Message(False, "a warning"), Message(False, "'two' depends on axioms: [sorryAx]")), "wrong", "sorryAx"),
        ((Message(False, "'two' depends on axioms: [propext, cheat]"),), "wrong", "it rests on cheat"),
        # a forged report beside the real one
        ((Message(False, CLEAN), Message(False, "'two' depends on axioms: [cheat]")), "wrong", "it rests on cheat"),
        ((), "crashed", "neither an error nor the axioms"),
        ((Message(False, "'other' does not depend on any axioms"),), "crashed", "neither an error"),
        ((Message(False, "'two' does as it likes"),), "crashed", "unreadable"),
        ((Message(False, "'two' depends on axioms: []"),), "crashed", "unreadable"),
        (Finding(Outcome.TIMEOUT, "too slow"), "timeout", "too slow"),
    ],
)  # fmt: skip
def test_what_lean_says(reply: Reply, outcome: str, evidence: str) -> None:
    verdict = LeanVerifier(backend=Scripted(reply)).verify(PROBLEM, boxed("  subst h\n  rfl"))
    assert verdict.outcome == outcome
    assert evidence in verdict.evidence


def test_the_file_is_the_statement_and_the_proof_as_indented() -> None:
    backend = Scripted((Message(False, CLEAN),))
    verifier = LeanVerifier(backend=backend)
    texts = [boxed("  subst h\n  rfl"), boxed("```lean4\n  subst h\n  rfl\n```"), boxed("sorry"), "nothing"]
    verdicts = verifier.verify_many([Request(PROBLEM, text) for text in texts])
    assert [verdict.outcome for verdict in verdicts] == ["correct", "correct", "wrong", "unparsable"]
    assert backend.sources[2:] == [f"{HEADER}\n{STATEMENT}\n  subst h\n  rfl\n\n\n#print axioms two\n"]
    assert verifier.verify(Problem("p", "q", ""), boxed("rfl")).outcome is Outcome.CRASHED


def test_without_lean_the_verifier_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lean, "SEARCHED", "/nowhere")
    with pytest.raises(ConfigError, match=r"'lean' needs a server \(verifier.proof.lean_url\) or the program lean"):
        make_verifier("lean")


@pytest.mark.parametrize(
    "fields",
    [{"lean_url": "localhost:8000"}, {"lean_path": "/opt/lean"}, {"lean_path": "/usr/a:/home/b"}, {"timeout_s": 0}],
)
def test_unusable_settings_are_named(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(fields))):
        parse(LeanConfig, fields)


def spoken(severity: str, text: str) -> bytes:
    return json.dumps({"severity": severity, "data": text, "pos": {"line": 1, "column": 0}}).encode() + b"\n"


@pytest.mark.parametrize(
    ("status", "code", "stdout", "outcome"),
    [
        (Status.EXITED, 0, spoken("warning", "unused h") + spoken("information", CLEAN), "correct"),
        (Status.EXITED, 1, spoken("error", "unsolved goals") + spoken("information", CLEAN), "wrong"),
        (Status.TIMEOUT, None, b"", "timeout"), (Status.SIGNALLED, -9, b"", "wrong"),
        (Status.EXITED, 127, b"lean: not found\n", "crashed"), (Status.EXITED, 0, b"", "crashed"),
        (Status.FAILED, None, b"", "crashed"),
    ],
)  # fmt: skip
def test_the_program_in_the_sandbox(
    monkeypatch: pytest.MonkeyPatch, fake_sandbox: Any, status: Status, code: int | None, stdout: bytes, outcome: str
) -> None:
    monkeypatch.setattr(lean.shutil, "which", lambda *_, **__: "/usr/local/bin/lean")
    config = LeanVerifier.Config(kind="lean", proof=LeanConfig(timeout_s=7, lean_path="/usr/local/lib/mathlib"))
    good = RunResult(Status.EXITED, 0, spoken("info", "'groupwise_control' does not depend on any axioms"), b"", 0.1)
    bad = RunResult(Status.EXITED, 1, spoken("error", "no"), b"", 0.1)
    ends = iter((good, bad, RunResult(status, code, stdout, b"", 0.1, "evidence")))
    sandbox = fake_sandbox(lambda _: next(ends))
    verifier = LeanVerifier(config, LeanProgram(config.proof, config.sandbox, sandbox))
    assert verifier.verify(PROBLEM, boxed("omega")).outcome == outcome
    program = sandbox.programs[-1]
    assert program.command == ("env", "HOME=.", "LEAN_PATH=/usr/local/lib/mathlib", "lean", "--json", "Answer.lean")
    assert program.files["Answer.lean"].endswith(b"omega\n\n\n#print axioms two\n")
    assert (program.wall_s, program.cpu_s) == (56, 7)


def result(request: dict[str, Any], messages: list[tuple[str, str]]) -> dict[str, Any]:
    told = [{"severity": severity, "data": text, "pos": {"line": 1, "column": 0}} for severity, text in messages]
    return {"results": [{"custom_id": request["codes"][0]["custom_id"], "response": {"messages": told, "env": 0}}]}


def honest(exchange: Any, number: int) -> None:
    """Judges the controls rightly and accepts `omega`, as far as it is asked in the agreed form."""
    request = exchange.server.bodies[number - 1]
    (code,) = request["codes"]
    assert (request["timeout"], exchange.path) == (1, "/v1/verify")
    known = controls(code["proof"])
    if known is not None:
        messages = [("error" if message.is_error else "info", message.text) for message in known]
    else:
        messages = [("info", CLEAN)] if "\nomega\n" in code["proof"] else [("error", "it failed")]
    exchange.send(result(request, messages))


def slow(exchange: Any, number: int) -> None:
    exchange.server.over.wait(4.0)
    honest(exchange, number)


def dripping(exchange: Any, _: int) -> None:
    exchange.send_response(200)
    exchange.end_headers()
    while not exchange.server.over.wait(0.05):
        exchange.wfile.write(b" ")


def server_config(url: str, timeout_s: float = 1.0) -> VerifierConfig:
    return LeanVerifier.Config(kind="lean", proof=LeanConfig(lean_url=url, timeout_s=timeout_s), num_workers=4)


def test_an_honest_server(endpoint: Any) -> None:
    endpoint.behaviour = honest
    with make_verifier(server_config(f"{endpoint.url}/")) as verifier:
        requests = [Request(PROBLEM, boxed(proof)) for proof in ("omega", "simp", "sorry")]
        assert [verdict.outcome for verdict in verifier.verify_many(requests)] == ["correct", "wrong", "wrong"]


ID = {"custom_id": "another"}


@pytest.mark.parametrize(
    ("body", "status", "outcome", "evidence"),
    [
        ({"results": []}, 200, "crashed", "no answer of the protocol"),
        ({"results": [{"custom_id": None, "response": {}}]}, 200, "crashed", "which is not what was asked"),
        ({"results": [ID]}, 200, "crashed", "'another', which is not what was asked"),
        (b"<html>", 200, "crashed", "no answer of the protocol"),
        (b"[" * 50_000, 200, "crashed", "no answer of the protocol"),
        ([1, 2], 200, "crashed", "no answer of the protocol"), ({"detail": "busy"}, 503, "crashed", "HTTP status 503"),
        ({"error": "Lean REPL command timed out in 1 seconds"}, 200, "wrong", "timed out"),
        ({"error": "no REPL is free"}, 200, "crashed", "no REPL is free"),
        ({"error": 7}, 200, "crashed", "no answer of the protocol"),
        ({"response": {"message": "unknown environment"}}, 200, "crashed", "neither an error nor"),
        ({"response": {"messages": [{"severity": "fine", "data": "x"}]}}, 200, "crashed", "no answer of the protocol"),
        ({"response": {"messages": [{"data": CLEAN}]}}, 200, "crashed", "no answer of the protocol"),
        ({"response": None}, 200, "crashed", "no answer of the protocol"),
    ],
)  # fmt: skip
def test_a_failing_server_says_nothing_about_the_proof(
    endpoint: Any, body: Any, status: int, outcome: str, evidence: str
) -> None:
    def fail(exchange: Any, number: int) -> None:
        (code,) = exchange.server.bodies[number - 1]["codes"]
        if "groupwise_control" in code["proof"]:
            honest(exchange, number)
        elif isinstance(body, dict) and not {"results", "detail"} & body.keys():
            exchange.send({"results": [{"custom_id": code["custom_id"], **body}]}, status)
        else:
            exchange.send(body, status)

    endpoint.behaviour = fail
    with make_verifier(server_config(endpoint.url)) as verifier:
        verdict = verifier.verify(PROBLEM, boxed("omega"))
    assert verdict.outcome == outcome
    assert evidence in verdict.evidence


@pytest.mark.parametrize("answer", [slow, dripping])
def test_a_slow_server_is_refused_in_time(endpoint: Any, answer: Any) -> None:
    endpoint.behaviour = answer
    began = time.perf_counter()
    with pytest.raises(VerifierError, match=r"timeout, not correct: the Lean server did not answer within 0.4 s"):
        make_verifier(server_config(endpoint.url, timeout_s=0.05))
    assert time.perf_counter() - began < 15.0


def test_an_absent_server_is_refused() -> None:
    with pytest.raises(VerifierError, match="crashed, not correct: the Lean server failed: ConnectionRefusedError"):
        make_verifier(server_config("http://127.0.0.1:9"))


def test_a_server_that_accepts_everything_is_refused(endpoint: Any) -> None:
    def lie(exchange: Any, number: int) -> None:
        words = "'groupwise_control' does not depend on any axioms"
        exchange.send(result(exchange.server.bodies[number - 1], [("info", words)]))

    endpoint.behaviour = lie
    with pytest.raises(VerifierError, match=r"1 \+ 1 = 3 := by rfl` correct, not wrong"):
        make_verifier(server_config(endpoint.url))
