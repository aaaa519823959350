"""Change one thing after the other in how MBPP is measured: weights, arithmetic, prompt, extraction.

    python lab/benchmarks/mbpp_ablations.py MODEL.gguf --data DATA [--problems 200] [--directory runs/mbpp-ablations]

Everything is greedy and in bf16 but for the row that says otherwise; transformers samples where a penalty is asked for.
What is sampled is kept, so that a stopped run goes on, and a second extraction samples nothing. Prints a line for each
way, with its paired difference to the first.
"""

import argparse
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import gguf
import numpy as np
import torch
from transformers import AutoModelForCausalLM

from groupwise.algorithms.statistics import mean_share, paired_difference
from groupwise.evaluation.suite import BENCHMARKS, evaluate_suite
from groupwise.models.gguf import read_gguf
from groupwise.runs.directory import RunDirectory
from groupwise.runs.rollouts import read_columns

THREE = BENCHMARKS["mbpp"]["protocols"]["mbpp_3shot"]["template"]["prompt"]
NONE = THREE[THREE.rindex("You are an expert") :]
OPEN, CHAT, PLAIN = "mbpp:tinycodellm", "mbpp:chat", "mbpp:mbpp_3shot"
HIDDEN = "<|im_start|>user\n{data.text}\n<|im_start|>assistant\n"
OPENED = BENCHMARKS["mbpp"]["protocols"]["tinycodellm"]["template"]["prompt"]
CLOSED = OPENED.removeprefix("<|im_start|>user\n").removesuffix("\n<|im_start|>assistant\n")

BATCH, MOST = 50, 256
"""Completions that transformers samples at one time, and the most tokens of each, as that evaluator has it."""


class Way(NamedTuple):
    """A way to measure; ways of one directory share their completions."""

    says: str
    directory: str
    suite: str = PLAIN
    template: Mapping[str, object] = MappingProxyType({})
    program: str = "whole"
    dtype: str = "bfloat16"
    is_coarse: bool = False
    penalty: float = 1.0  # Of tokens that were there before; other than 1, transformers samples


WAYS = (
    Way("three examples, no chat template, all of the answer", "three"),
    Way("... the program of EvalPlus's sanitiser", "three", program="sanitised"),
    Way("... the first fenced block, else all", "three", program="first"),
    Way("fp32 instead of bf16", "fp32", dtype="float32"),
    Way("all matrices rounded again, to 4 bits (Q4_0)", "coarse", is_coarse=True),
    Way("without the three examples", "none", template={"prompt": NONE}),
    Way("... the first fenced block, else all", "none", template={"prompt": NONE}, program="first"),
    Way("... sanitised", "none", template={"prompt": NONE}, program="sanitised"),
    Way("TinyCodeLLM's prompt, first block", "open", OPEN, {}, "first"),
    Way("... sanitised", "open", OPEN, {}, "sanitised"),
    Way("... a repetition penalty of 1.1 (transformers), first block", "penalised", OPEN, {}, "first", penalty=1.1),
    Way("... without the tests, first block", "hidden", OPEN, {"prompt": HIDDEN}, "first"),
    Way("... its turn closed, by the chat template", "closed", OPEN, {"prompt": CLOSED, "chat": True}, "first"),
    Way("three examples in the chat template, first block", "chat_three", template={"chat": True}, program="first"),
    Way("... sanitised", "chat_three", template={"chat": True}, program="sanitised"),
    Way("lm-eval's task and tests in the chat template, first block", "chat", CHAT, program="first"),
    Way("... sanitised", "chat", CHAT, program="sanitised"),
)


def coarser(source: Path, target: Path) -> None:
    """Copy a GGUF file with every matrix rounded to Q4_0, from what its own rounding left."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name not in ("general.architecture", "general.file_type"):
            inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], inner)
    kind = gguf.GGMLQuantizationType.Q4_0
    writer.add_file_type(int(gguf.LlamaFileType.MOSTLY_Q4_0))
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        if values.ndim == 1:
            writer.add_tensor(tensor.name, values.astype(np.float32))
        else:
            writer.add_tensor(tensor.name, gguf.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def penalise(way: Way, model: Path, sampled: Path, target: Path) -> None:
    """Copy a run, with the completions that transformers' greedy `generate` makes under a repetition penalty."""
    directory = read_gguf(str(model))
    lm = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16)
    stops = [lm.config.eos_token_id, lm.generation_config.eos_token_id]
    [file] = (sampled / "kept").glob("*.jsonl")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    for at in range(0, len(rows), BATCH):
        batch = rows[at : at + BATCH]
        width = max(len(row["prompt"]) for row in batch)
        filled = [[0] * (width - len(row["prompt"])) + row["prompt"] for row in batch]
        mask = [[0] * (width - len(row["prompt"])) + [1] * len(row["prompt"]) for row in batch]
        out = lm.generate(
            torch.tensor(filled), attention_mask=torch.tensor(mask), max_new_tokens=MOST, do_sample=False,
            repetition_penalty=way.penalty, eos_token_id=[int(s) for s in np.hstack(stops)], pad_token_id=0,
        )  # fmt: skip
        for row, ids in zip(batch, out[:, width:].tolist(), strict=True):
            ends = [place for place, token in enumerate(ids) if token in np.hstack(stops)]
            ids = ids[: ends[0] + 1] if ends else ids
            nothing, reason = [0.0] * len(ids), "stop" if ends else "length"
            row["samples"] = [{"token_ids": ids, "logprobs": nothing, "entropy": nothing, "finish_reason": reason}]
        print(f"{at + len(batch)} of {len(rows)}", flush=True)
    shutil.copytree(sampled, target)
    for verdicts in target.glob("*.json"):  # of what was sampled without it
        verdicts.unlink()
    (target / "kept" / file.name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def right(way: Way, model: Path, options: argparse.Namespace) -> list[float]:
    """Return 1 for every problem that is solved by this way, else 0; verdicts are kept, too."""
    directory = options.directory / way.directory
    verdicts = directory / f"{way.program}-{options.problems}.json"
    if not verdicts.exists():
        if way.is_coarse:
            model = options.directory / f"{model.stem}-q4_0.gguf"
            if not model.exists():
                coarser(options.model, part := model.with_suffix(".part"))
                part.rename(model)
        if way.penalty != 1 and not (directory / "kept").exists():
            penalise(way, model, options.directory / "open", directory)
        template = {f"task.template.{key}": value for key, value in way.template.items()}
        score, *_ = evaluate_suite(
            model, [way.suite], directory=directory, data=options.data, problems=options.problems, dtype=way.dtype,
            changes=template | {"verifier.program": way.program},
        )  # fmt: skip
        columns = read_columns(RunDirectory(directory).rollouts(way.suite.replace(":", "-")), ("outcome",))
        found = [float(outcome == "correct") for outcome in columns["outcome"].to_pylist()]
        verdicts.write_text(json.dumps({"right": found, "tokens": score.tokens, "cut": score.cut}))
    kept = json.loads(verdicts.read_text())
    print(f"{way.says}: {kept['tokens']:.0f} tokens, {kept['cut']:.1%} cut off", flush=True)
    return list(kept["right"])


def main() -> None:
    """Measure every way and print its line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", required=True)
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--directory", type=Path, default=Path("runs/mbpp-ablations"))
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    first: list[float] = []
    for way in WAYS:
        found = right(way, options.model, options)
        first = first or found
        share = "{:.1f} [{:.1f}, {:.1f}]".format(*(100 * value for value in mean_share(found)))
        change = "{:+.1f} [{:+.1f}, {:+.1f}]".format(*(100 * value for value in paired_difference(first, found)))
        print(f"| {way.says} | {share} | {change} |", flush=True)


if __name__ == "__main__":
    main()
