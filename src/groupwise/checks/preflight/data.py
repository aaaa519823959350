"""Problems (counts, repeats, contradictions, overlaps of splits) and their prompts as tokens."""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from groupwise.checks import Advice, Finding, Severity
from groupwise.checks.preflight.bench import Bench, Checked, check, finding
from groupwise.errors import GroupwiseError
from groupwise.models.prompts import control_in, encode_prompt, rendered
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.episodes import Episodes
from groupwise.types import Problem, Prompt, Split
from groupwise.verifiers.math import MathVerifier

SHOWN = 5  # problems that a finding names at most
REPEATED = 0.01  # share of repeated questions from which on they are worth a warning


def same(question: str) -> str:
    r"""Return the form in which questions are compared: without case, spaces and forms of letters.

    >>> same("What  is\n１ + 1? ")
    'what is 1 + 1?'
    """
    return " ".join(unicodedata.normalize("NFKC", question).casefold().split())


@check("data", "free", says="counts, repeats, contradictory answers, and evaluation problems that training sees",
       source="exact repeats after NFKC, case and spaces; bounds are shares of the problems")  # fmt: skip
def data(bench: Bench) -> Checked:
    """Look at every problem of every split that the recipe uses."""
    splits: dict[Split, Sequence[Problem]] = {split: bench.problems(split) for split in ("train", "dev")}
    findings: list[Finding] = []
    if wanted := bench.recipe.evaluation.test_problems:
        try:
            splits["test"] = bench.problems("test")
        except GroupwiseError as error:
            findings.append(finding(
                Severity.CRITICAL, f"evaluation.test_problems = {wanted}, but {error}",
                "The run ends with this error after its last step.",
                Advice("evaluation.test_problems", "0, or give the task problems to test on"),
            ))  # fmt: skip
    findings += [*_splits(bench, splits), *_repeats(splits["train"]), *_answers(bench, splits)]
    figures: dict[str, Any] = {f"{split} problems": len(problems) for split, problems in splits.items()}
    for field in ("difficulty", "language"):
        counts = Counter(str(getattr(problem, field)) for problem in splits["train"])
        figures[field] = dict(counts.most_common(SHOWN))
    return Checked(figures, tuple(findings))


def _splits(bench: Bench, splits: Mapping[Split, Sequence[Problem]]) -> Iterator[Finding]:
    batch, evaluation = bench.recipe.batch, bench.recipe.evaluation
    wanted = {"train": batch.prompts_per_step, "dev": evaluation.num_problems, "test": evaluation.test_problems}
    for split, problems in splits.items():
        if not problems or (split == "train" and len(problems) < wanted[split]):
            short = finding(
                Severity.CRITICAL, f"{len(problems)} {split} problems, {wanted[split]} are wanted",
                "The run ends with an error when it needs them.",
                Advice(f"{bench.recipe.algorithm}.prompts_per_step" if split == "train" else "task",
                       f"at most {len(problems)}" if problems else f"give it {split} problems"),
            )  # fmt: skip
            yield replace(short, is_error=split != "test")  # of those the run speaks at once
        elif len(problems) < wanted[split]:
            yield finding(
                Severity.NOTE, f"{len(problems)} {split} problems, {wanted[split]} are wanted",
                "All there are will be used; the interval of the result is wider.", Advice("task", "more problems"),
            )  # fmt: skip
    seen = {
        split: {same(problem.question): problem.id for problem in problems if not problem.environment}
        for split, problems in splits.items()
    }
    for first, second in combinations(seen, 2):
        if common := sorted(seen[first].keys() & seen[second].keys()):
            trained = first == "train"
            yield finding(
                Severity.CRITICAL if trained else Severity.WARNING,
                f"{len(common)} of {len(seen[second])} {second} questions are {first} questions too (case, spaces and "
                "width of letters apart)",
                "What is measured there is memory: the result will look better than it is." if trained else
                "The best checkpoint is chosen on problems of the final test.",
                Advice("task", f"leave these questions out of the {first} problems"),
                [f"{second} {seen[second][text]} = {first} {seen[first][text]}" for text in common],
            )  # fmt: skip


def _repeats(problems: Sequence[Problem]) -> Iterator[Finding]:
    by_question: dict[str, list[Problem]] = defaultdict(list)
    for problem in problems:
        if not problem.environment:  # which makes equal questions different episodes
            by_question[same(problem.question)].append(problem)
    repeated = [copies for copies in by_question.values() if len(copies) > 1]
    split = [c for c in repeated if len({(same(p.reference), repr(sorted(p.data.items()))) for p in c}) > 1]
    other = [copies for copies in split if len({same(problem.reference) for problem in copies}) > 1]
    if other:
        yield finding(
            Severity.CRITICAL if len(other) > REPEATED * len(by_question) else Severity.WARNING,
            f"{len(other)} training questions stand there with different reference answers, for example "
            f"{[problem.reference[:60] for problem in other[0]]}",
            "The same right answer is paid in one group and not in the other.",
            Advice("task", "keep one reference answer of each question"), [copies[0].id for copies in other],
        )  # fmt: skip
    extra = sum(len(copies) - 1 for copies in repeated)
    if extra > REPEATED * len(problems):
        yield finding(
            Severity.WARNING, f"{extra} of {len(problems)} training problems repeat an earlier question",
            "Some problems count several times in every epoch.", Advice("task", "leave the repeats out"),
            [copies[1].id for copies in repeated],
        )  # fmt: skip


def _answers(bench: Bench, splits: Mapping[Split, Sequence[Problem]]) -> Iterator[Finding]:
    asked = [problem for problems in splits.values() for problem in problems if not problem.environment]
    if empty := [problem.id for problem in asked if not problem.question.strip()]:
        yield finding(
            Severity.CRITICAL, f"{len(empty)} problems have no question", "The model is asked nothing.",
            Advice("task.question_field", "the field that holds the question"), empty,
        )  # fmt: skip
    answers = Counter(problem.reference for problem in splits["train"] if not problem.open_ended)
    judged = sum(answers.values())
    common, times = answers.most_common(1)[0] if answers else ("", 0)
    if judged >= 20 and bench.verifier.accepts_references and common and times > 0.9 * judged:
        yield finding(
            Severity.WARNING, f"{times} of {judged} reference answers are {common[:60]!r}",
            "One answer, learnt once, solves nearly everything.",
            Advice("task.answer_field", "the field that holds the answer, or more varied problems"),
        )  # fmt: skip
    if not isinstance(bench.verifier, MathVerifier):
        return
    unreadable = bench.verifier.unreadable([p for problems in splits.values() for p in problems if not p.open_ended])
    if unreadable:
        share = len(unreadable) / sum(map(len, splits.values()))
        yield finding(
            Severity.CRITICAL if share > REPEATED else Severity.WARNING,
            f"{len(unreadable)} reference answers ({share:.1%}) cannot be read; {unreadable[0][1]}",
            "Nothing that the model writes will be judged correct there.",
            Advice("task.answer_field", "another field, or task.answer_pattern"),
            [f"{problem.id}: {problem.reference[:60]!r}" for problem, _ in unreadable],
        )  # fmt: skip


NUM_PROMPTS = 512  # prompts of a split that are written
NUM_BEGUN = 16  # episodes whose prompts their environment begins
SPLITS_SEEN: tuple[Split, ...] = ("train", "dev")  # the test split is not opened before a run's end
SHOWN_TOKENS = 40  # tokens at either end of the prompt that is shown


@check("prompts", "model", says="every prompt as token ids: one BOS, stop tokens, lengths against the context",
       source="peers' threads on doubled BOS and lost stop tokens; lengths are counted")  # fmt: skip
def prompts(bench: Bench) -> Checked:
    """Write the prompts of every split; the tokenizer refuses what it cannot write, and two BOS tokens."""
    policy, template = bench.policy, bench.task.template
    spelt = {
        problem.id: token
        for split in SPLITS_SEEN for problem in bench.problems(split)
        if (token := control_in(policy.tokenizer, problem.messages or problem.question))
    }  # fmt: skip
    if spelt:
        return Checked({}, (finding(
            Severity.CRITICAL,
            f"{len(spelt)} questions hold the text of a control token, such as {next(iter(spelt.values()))!r}",
            "The model would read it as the token itself, for example as the end of all text: the run refuses it.",
            Advice("task", "leave such texts out of the questions, or write them apart"), list(spelt),
        ),))  # fmt: skip
    some = [problem for split in SPLITS_SEEN for problem in bench.some(NUM_PROMPTS, split)]
    written = [encode_prompt(policy, template, problem) for problem in some if not problem.environment]
    begun = [problem for problem in some if problem.environment][:NUM_BEGUN]
    written += Episodes(bench.crews, policy, template, begun, Draws(bench.recipe.run.seed, Purpose.PREFLIGHT)).prompts
    lengths = [len(prompt.token_ids) for prompt in written]
    middle, high = np.quantile(lengths, (0.5, 0.99)).tolist()
    ids = written[0].token_ids
    kept = ids if len(ids) <= 2 * SHOWN_TOKENS else (*ids[:SHOWN_TOKENS], *ids[-SHOWN_TOKENS:])
    tokens = [policy.tokenizer.decode([token]) for token in kept]
    if len(kept) < len(ids):
        tokens.insert(SHOWN_TOKENS, f" … {len(ids) - len(kept)} tokens … ")
    figures: dict[str, Any] = {
        "tokens of a prompt": f"p50 {middle:.0f}, p99 {high:.0f}, longest {max(lengths)}",
        "context": policy.context_length,
        "stop tokens": [policy.tokenizer.convert_ids_to_tokens(i) for i in sorted(policy.stop_ids)],
        "prompt": "¦".join(tokens),
    }
    if written[0].prefill:
        figures["begun answer"] = written[0].prefill
    return Checked(figures, (*_tokens(bench, written), *_ends(bench)))


def _tokens(bench: Bench, written: Sequence[Prompt]) -> Iterator[Finding]:
    tokenizer, context = bench.policy.tokenizer, bench.policy.context_length
    room = context - bench.recipe.sampling.max_tokens
    if cut := [prompt for prompt in written if len(prompt.token_ids) > room]:
        longest = max(len(prompt.token_ids) for prompt in cut)
        yield finding(
            Severity.CRITICAL,
            f"{len(cut)} of {len(written)} prompts do not fit: the longest has {longest} tokens, and with "
            f"sampling.max_tokens = {bench.recipe.sampling.max_tokens} the context of {context} leaves {room}",
            "The run ends with an error when it meets one of them; nothing is cut silently.",
            Advice("sampling.max_tokens", f"at most {context - longest}") if longest < context
            else Advice("task", "leave the long problems out"),
            [prompt.problem.id for prompt in cut],
        )  # fmt: skip
    bos = tokenizer.bos_token_id
    if bos is None or bos in bench.policy.stop_ids:
        return
    stops = "|".join(map(re.escape, tokenizer.convert_ids_to_tokens(sorted(bench.policy.stop_ids))))
    begun = re.compile(rf"(?:^|(?:{stops})\s*){re.escape(tokenizer.bos_token)}")  # SmolLM2 begins every turn with BOS
    texts = [begun.sub("", tokenizer.decode(prompt.token_ids)) for prompt in written]
    several = [prompt.problem.id for prompt, text in zip(written, texts, strict=True) if tokenizer.bos_token in text]
    if several:
        yield finding(
            Severity.CRITICAL, f"{len(several)} of {len(written)} prompts hold {tokenizer.bos_token!r} more than once",
            "The model was never trained on such a prompt, and answers it worse.",
            Advice("task.template", "leave the token out: the tokenizer or its chat template writes it"), several,
        )  # fmt: skip
    without = [prompt.problem.id for prompt in written if prompt.token_ids[0] != bos]
    if without and tokenizer("a")["input_ids"][:1] == [bos]:
        yield finding(
            Severity.WARNING, f"{len(without)} of {len(written)} prompts do not begin with {tokenizer.bos_token!r}, "
            "which the tokenizer writes before other texts",
            "The model may answer worse than it can.", Advice("task.template", "a chat template that writes it"),
            without,
        )  # fmt: skip


def _ends(bench: Bench) -> Iterator[Finding]:
    policy, template = bench.policy, bench.task.template
    if not template.chat:
        return
    messages = [*template.messages(bench.problems("train")[0]), {"role": "assistant", "content": "forty-two"}]
    rest = rendered(policy.tokenizer, messages, template).text.rpartition("forty-two")[2]
    after = list(policy.tokenizer(rest, add_special_tokens=False)["input_ids"]) if rest else []
    stops = [policy.tokenizer.convert_ids_to_tokens(i) for i in sorted(policy.stop_ids)]
    if not after:
        yield finding(
            Severity.WARNING, "the chat template writes nothing after an answer",
            "The model was never shown where an answer ends.", Advice("model.path", "a model with a chat template"),
        )  # fmt: skip
    elif after[0] not in policy.stop_ids:
        token = policy.tokenizer.convert_ids_to_tokens(after[0])
        yield finding(
            Severity.CRITICAL,
            f"the chat template ends an answer with {token!r}, and completions stop at {', '.join(stops)} alone",
            "Completions run on behind their answer until the token limit, and are judged with all that.",
            Advice("model.path", f"put {token!r} into eos_token_id of the model's generation_config.json"),
        )  # fmt: skip
