"""What the server of `processes.py` has done before it forks the first run."""

# ruff: noqa: F401

import os
from contextlib import suppress
from functools import cache

import torch.distributed.fsdp
import torch.distributed.tensor
import transformers.models.qwen2.modeling_qwen2
import transformers.models.qwen3.modeling_qwen3

import groupwise.cli.pipeline
import groupwise.cli.train
import groupwise.explorer.export
import groupwise.rollout.decode
from groupwise.pipeline import fingerprint

with suppress(ImportError):  # transformers imports it where it is installed
    import pandas

os.fsync = os.fstat  # type: ignore[assignment]  # as in all tests
fingerprint._near = cache(fingerprint._near)  # type: ignore[assignment]
fingerprint.code_version(["groupwise.pipeline.train", "groupwise.pipeline.evaluation"])
