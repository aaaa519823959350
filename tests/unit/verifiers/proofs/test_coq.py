"""Coq: what the fence refuses, and with `coqc` in the sandbox what is accepted, refused and seen through."""

import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from groupwise.errors import ConfigError
from groupwise.sandbox.base import RunResult, Status
from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers import Request, make_verifier
from groupwise.verifiers.proofs import coq
from groupwise.verifiers.proofs.base import ProofConfig, RuleError
from groupwise.verifiers.proofs.coq import CoqVerifier, tactics_only

CONFIG = CoqVerifier.Config(kind="coq", proof=ProofConfig(timeout_s=20, memory_mb=1024))
needs_coq = pytest.mark.skipif(
    shutil.which("coqc", path=coq.SEARCHED) is None or shutil.which("bwrap") is None, reason="needs coqc and bubblewrap"
)


def problem(statement: str, header: str = "") -> Problem:
    return Problem("p", "q", "", data={"statement": statement, "header": header})


def boxed(script: str) -> str:
    return "<think></think>\\boxed{\n" + script + "\n}"


@pytest.mark.parametrize(
    ("script", "sent"),
    [
        ("Proof.\n  intros n. reflexivity.\nQed.", "\n  intros n. reflexivity.\n"),
        ("Proof using A. auto. Defined. ", " auto. "),
        ("split.\n- lia.\n+ { exact I. }", "split.\n- lia.\n+ { exact I. }"),
        ("auto. (* Admitted. (* nested *) Axiom *) lia.", "auto.   lia."),
        ("rewrite Nat.add_comm. apply H0...", "rewrite Nat.add_comm. apply H0..."),
        ("1: { lia. } all: auto.", "1: { lia. } all: auto."),
    ],
)
def test_tactics_pass_the_fence(script: str, sent: str) -> None:
    assert tactics_only(script) == sent


@pytest.mark.parametrize(
    "script",
    [
        "Admitted.", "auto. Admitted.", "auto.\nAdmitted.\n", "auto.\tAbort.", "{ auto. }Admitted.", "- Admitted.",
        "all: Admitted.", "2: Admitted.", "Axiom cheat : False.", "auto. Qed. Lemma a : True.", "Qed. Qed.",
        'Redirect "x" Print nat.', "Load cheat.", 'Declare ML Module "x".', "#[local] Axiom a : False.",
        "auto.(* x *)Admitted.", "auto. (* x *) Admitted.", '"(*" . Axiom a : False. (* "', "Set Universe Checking.",
        "auto.\u00a0Admitted.", "auto (* open", "auto *) Admitted.", "Time auto.", "Proof. Proof. auto.",
    ],
)  # fmt: skip
def test_commands_do_not_pass_the_fence(script: str) -> None:
    with pytest.raises(RuleError):
        tactics_only(script)


def test_hostile_texts_take_no_time() -> None:
    began = time.process_time()
    floods = ("(*" * 10_000, "(**)" * 5000, ". " * 10_000, " " * 20_000, "1" * 20_000, "Proof using " * 1600)
    for flood in (*floods, "Qed.\n" * 4000):
        with suppress(RuleError):
            tactics_only(flood)
    assert time.process_time() - began < 0.5


def test_without_coqc_the_verifier_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coq, "SEARCHED", "/nowhere")
    with pytest.raises(ConfigError, match=r"'coq' needs the program coqc in /nowhere.*apt-get install coq"):
        make_verifier("coq")


def result(status: Status = Status.EXITED, code: int | None = 0, out: bytes = b"", err: bytes = b"") -> RunResult:
    return RunResult(status, code, out, err, 0.1, "evidence of the sandbox")


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coq.shutil, "which", lambda *_, **__: "/usr/bin/coqc")


ERROR = result(code=1, err=b'File "./Answer.v", line 4:\nError: The reference x\nwas not found.')


@pytest.mark.usefixtures("scripted")
@pytest.mark.parametrize(
    ("results", "outcome", "evidence"),
    [
        ([result(out=b"YQ=="), result(out=b"Closed under the global context\n")], "correct", "rests on no axiom"),
        ([result(out=b"YQ=="), result(out=b"Axioms:\ncheat : False\n")], "wrong", "rests on Axioms: cheat : False"),
        ([result(out=b"YQ=="), result(out=b"Closed under the global context\nor so")], "wrong", "or so"),
        ([result(out=b"YQ=="), result(out=b"")], "wrong", "rests on"),
        ([result(out=b"YQ=="), ERROR], "wrong", "The reference x was not found."),
        ([result(out=b"YQ=="), result(Status.TIMEOUT)], "timeout", "check of the compiled proof"),
        ([result(out=b"YQ=="), result(Status.SIGNALLED)], "crashed", "check of the compiled proof"),
        ([result(Status.FAILED)], "crashed", "the sandbox failed"),
        ([ERROR, result()], "wrong", "The reference x was not found."),
        ([ERROR, ERROR], "crashed", "the problem's statement does not compile"),
        ([result(Status.TIMEOUT)], "timeout", "evidence of the sandbox"),
        ([result(Status.SIGNALLED), result()], "wrong", "evidence of the sandbox"),
        ([result(Status.FLOODED), result()], "wrong", "evidence of the sandbox"),
    ],
)
def test_what_the_runs_mean(fake_sandbox: Any, results: list[RunResult], outcome: str, evidence: str) -> None:
    ends = iter(results)
    sandbox = fake_sandbox(lambda _: next(ends))
    verdict = CoqVerifier(CONFIG, sandbox).verify(problem("True"), boxed("exact I."))
    assert verdict.outcome == outcome
    assert evidence in verdict.evidence
    assert len(sandbox.programs) == len(results)
    assert all((program.wall_s, program.cpu_s, program.memory_mb) == (160, 20, 1024) for program in sandbox.programs)


@pytest.mark.usefixtures("scripted")
def test_equal_proofs_run_once_and_a_refused_one_never(fake_sandbox: Any) -> None:
    ends = iter((result(out=b"YQ=="), result(out=b"Closed under the global context")))
    sandbox = fake_sandbox(lambda _: next(ends))
    texts = [boxed("exact I."), boxed("Admitted."), boxed("exact I."), "no answer"]
    verdicts = CoqVerifier(CONFIG, sandbox).verify_many([Request(problem("True"), text) for text in texts])
    assert [verdict.outcome for verdict in verdicts] == ["correct", "wrong", "correct", "unparsable"]
    assert "'Admitted' is a command" in verdicts[1].evidence
    assert CoqVerifier(CONFIG, sandbox).verify(Problem("p", "q", ""), texts[0]).outcome is Outcome.CRASHED
    assert len(sandbox.programs) == 2


@pytest.fixture(scope="module")
def verifier() -> Iterator[CoqVerifier]:
    with CoqVerifier(CONFIG) as verifier:
        yield verifier


def judge_all(verifier: CoqVerifier, cases: list[tuple[Problem, str]]) -> list[Verdict]:
    return verifier.verify_many([Request(stated, boxed(script)) for stated, script in cases])


@needs_coq
def test_real_proofs(verifier: CoqVerifier) -> None:
    sums = problem("forall n : nat, n + 0 = n")
    verdicts = judge_all(
        verifier,
        [
            (sums, "intros n. induction n. (* base *)\n- reflexivity.\n- simpl. rewrite IHn. reflexivity."),
            (problem("forall n : nat, n + 0 = n", "Require Import Lia."), "Proof.\n  intros n. lia.\nQed."),
            (sums, "intros n. reflexivity."),
            (problem("forall n : nat, nonsense"), "auto."),
        ],
    )
    assert [verdict.outcome for verdict in verdicts] == ["correct", "correct", "wrong", "crashed"]
    assert "Unable to unify" in verdicts[2].evidence


@needs_coq
def test_cheats_that_pass_a_missing_fence_are_seen_through(
    verifier: CoqVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coq, "tactics_only", lambda script: script)
    name = "Theorem groupwise_answer"
    verdicts = judge_all(
        verifier,
        [
            (problem("False"), f"Abort. Axiom cheat : False. {name} : False. exact cheat."),
            (problem("False"), f"Abort. {name} : True. exact I."),
            (problem("False"), f"Abort. Definition False := True. {name} : False. exact I."),
            (problem("False"), f"Admitted. {name}2 : True. exact I."),
            (problem("1 = 2"), f'Abort. Notation "1" := 2. {name} : 1 = 2. reflexivity.'),
            (
                problem("False"),
                f"Abort. Unset Guard Checking. Fixpoint f (n : nat) : False := f n. {name} : False. exact (f 0).",
            ),
        ],
    )
    assert [verdict.outcome for verdict in verdicts] == [Outcome.WRONG] * 6, [v.evidence for v in verdicts]
    assert "cheat : False" in verdicts[0].evidence
    assert "assumed to be guarded" in verdicts[5].evidence


@needs_coq
def test_a_proof_without_end_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    # a busy machine may take long for one second of processor time
    monkeypatch.setattr("groupwise.verifiers.proofs.base.PATIENCE", 100)
    config = CoqVerifier.Config(kind="coq", proof=ProofConfig(timeout_s=1, memory_mb=1024))
    with CoqVerifier(config) as verifier:
        verdict = verifier.verify(problem("False"), boxed("repeat (pose proof I)."))
    assert verdict.outcome is Outcome.WRONG, verdict.evidence
    assert "processor time" in verdict.evidence
