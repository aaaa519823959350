"""Memory of a rank while a model starts: read in rows (`models.rows`), beside whole in every rank and cut afterwards.

    python lab/benchmarks/rank_start.py                # 1, 2 and 4 ranks
    python lab/benchmarks/rank_start.py --ranks 2 8

The model has random weights in fp32, tied, of which a third stand in no layer, as in small models with a large
vocabulary. Peaks are those of a process's memory (VmHWM of /proc/self/status) over what it held just before, with all
libraries loaded and the ranks met; pages of files that it maps count, although the system may drop them. `read` is the
peak until the weights are there; `checked` that with the comparison of the packed forward with transformers' own, for
which weights outside of layers are gathered, and one layer at a time. `own` is what the process holds for itself at the
end (RssAnon), over what it did before.
"""

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

MIB = 2**20
SHAPE = {
    "vocab_size": 16384, "hidden_size": 512, "num_hidden_layers": 5, "num_attention_heads": 8, "num_key_value_heads": 4,
    "head_dim": 64, "intermediate_size": 2048, "tie_word_embeddings": True, "eos_token_id": 1, "pad_token_id": 0,
    "bos_token_id": None,
}  # fmt: skip


def make_model(directory: Path) -> int:
    """Write a model with random weights; returns the bytes of its file."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from groupwise.models.new_model import byte_tokenizer

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen3", **SHAPE), dtype=torch.float32)
    model.save_pretrained(directory)
    byte_tokenizer().save_pretrained(directory)
    return (directory / "model.safetensors").stat().st_size


def memory(name: str) -> int:
    """Bytes of a line of /proc/self/status."""
    found = re.search(rf"^{name}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found
    return 1024 * int(found[1])


def be_rank(directory: str, way: str) -> None:
    """Start the model and print what it took."""
    import torch
    from torch.distributed.fsdp import fully_shard  # noqa: F401

    from groupwise.models.config import ModelConfig
    from groupwise.models.loading import quiet_transformers
    from groupwise.models.policy import Policy, start_policy
    from groupwise.models.sharded import sharded
    from groupwise.ranks import RanksConfig
    from groupwise.ranks.group import RANKS

    torch.set_num_threads(1)
    quiet_transformers()
    config = ModelConfig(path=directory, device="cpu")
    with RANKS.joined(RanksConfig(deadline_s=120)):
        RANKS.to_all(0)
        before, own_before = memory("VmRSS"), memory("RssAnon")
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        peaks: list[int] = []
        check = Policy.check_forward

        def noted(self: Policy) -> None:
            peaks.append(memory("VmHWM") - before)
            check(self)

        Policy.check_forward = noted  # type: ignore[method-assign]
        policy = sharded(start_policy(config, None, seed=0, in_rows=way == "rows"))
        facts = {
            "read": peaks[0],
            "checked": memory("VmHWM") - before,
            "own": memory("RssAnon") - own_before,
            "fingerprint": policy.fingerprint(),
        }
        if RANKS.is_first:
            print(json.dumps(facts), flush=True)


def measure(directory: Path, ranks: int, way: str) -> dict[str, object]:
    """Return the output of the first of several ranks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    alone = {"OMP_NUM_THREADS": "1"}
    shared = {**alone, "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, "--be", str(directory), way],
            env=os.environ | (shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} if ranks > 1 else alone),
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    said = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise SystemExit(f"a rank failed: {[process.returncode for process in processes]}")
    found: dict[str, object] = json.loads(said[0])
    return found


def main() -> None:
    """Measure every number of ranks both ways."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--be", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.be:
        be_rank(*asked.be)
        return
    with tempfile.TemporaryDirectory() as folder:
        size = make_model(Path(folder))
        print(f"weights: {size / MIB:.1f} MiB in one file")
        print("MiB of the first rank")
        print(f"{'ranks':>5} {'way':>6} {'read':>7} {'checked':>8} {'own':>7}  fingerprint")
        for ranks in asked.ranks:
            for way in ("whole", "rows") if ranks > 1 else ("whole",):
                facts = measure(Path(folder), ranks, way)
                read, checked, own = (float(str(facts[name])) / MIB for name in ("read", "checked", "own"))
                print(f"{ranks:5} {way:>6} {read:7.1f} {checked:8.1f} {own:7.1f}  {facts['fingerprint']}", flush=True)


if __name__ == "__main__":
    main()
