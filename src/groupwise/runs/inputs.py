"""Everything that a run reads by path: listed and hashed at its start, and compared whenever it resumes.

The references are found by the types of a recipe's fields (`config.schema`), never by the names of keys. `inputs.json`
in the run holds them, with the path of each as it was at the start, so that a recorded recipe means the same files from
any working directory; the user's Python is copied, too, each version as a folder that can be imported.
"""

import hashlib
import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from glob import glob
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel

from groupwise.config.kinds import KindSection
from groupwise.config.places import Place, written_in
from groupwise.config.schema import SHIPPED, ReadsFiles, resolve, stage_of, walk
from groupwise.errors import CheckpointError, ConfigError
from groupwise.runs.atomic import sha256_of, translated_disk_errors, write_file

INPUTS = "inputs.json"
NO_INPUT = ("trainer_state.json", "optimizer.safetensors", "manifest.json", "provenance.json")
"""Files of a model directory that no model is made of."""


@dataclass(frozen=True, slots=True)
class Input:
    """A reference of a recipe, and what it led to."""

    name: str  # its key; further ones of a list are numbered
    text: str  # as the recipe says it
    makes: str  # kind of the reference, as in `config.schema.Makes`; `python` for the user's own code
    path: str  # absolute; a name of the hub, or of the shipped model, as it is
    size: int = 0
    sha256: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    """Of a directory, or of Python with the files that it imports: their hashes by relative path."""
    revision: str = ""  # commit on the hub
    copy: str = ""  # of Python: where the run keeps it, from the run directory

    @classmethod
    def named(cls, name: str, text: str, makes: str) -> Self:
        location = Place.of(text) if makes == "python" else None
        path = str(location.file if location else text)
        if makes == "python" and location is None:  # a module by its name
            return cls(name, text, makes, str(Place.importable(text).file))
        is_elsewhere = text.startswith("hub:") or (text == SHIPPED and makes != "data")
        is_hub_name = makes in ("model", "reward_model") and not os.path.exists(path) and not os.path.isabs(path)
        return cls(name, text, makes, path if is_elsewhere or is_hub_name else os.path.abspath(path))

    def taken(self) -> Self:
        """Return it with the hashes of what is there now; a hash is empty where there is nothing."""
        if self.makes == "place":
            return self
        if self.makes == "python":
            paths = written_in(Path(self.path)) if os.path.isfile(self.path) else ()
            root = Path(os.path.commonpath([file.parent for file in paths])) if paths else Path()
        else:
            root = Path(resolve(self.path))
            paths = (root,) if root.is_file() else ()
            if root.is_dir():  # of a model or of data, at any depth, without hidden files and texts for people
                files = [path for path in sorted(root.rglob("*")) if path.is_file() and path.suffix != ".md"]
                shown = [path for path in files if path.name not in NO_INPUT]
                paths = tuple(p for p in shown if not any(part.startswith(".") for part in p.relative_to(root).parts))
            if not paths and any(sign in str(root) for sign in "*?["):
                paths = tuple(map(Path, sorted(glob(str(root), recursive=True))))
            root = root if root.is_dir() else root.parent
        if not paths:
            return replace(self, size=0, sha256="", files={}, revision=_revision(self.path, self.makes))
        hashes = {os.path.relpath(path, root): sha256_of(path) for path in paths}
        lines = "".join(f"{name}:{digest}\n" for name, digest in sorted(hashes.items()))
        is_file = self.makes != "python" and paths == (Path(resolve(self.path)),)
        whole = next(iter(hashes.values())) if is_file else hashlib.sha256(lines.encode()).hexdigest()
        size = sum(path.stat().st_size for path in paths)
        return replace(self, size=size, sha256=whole, files={} if is_file else hashes)

    def difference(self, now: "Input") -> str:
        """Return in words what changed since this was taken; empty where it is the same."""
        if self.sha256 and not now.sha256:
            return "is missing"
        if self.sha256 != now.sha256:
            names = sorted({name for name, _ in self.files.items() ^ now.files.items()})
            which = f" in {', '.join(names[:3])}{' ...' if len(names) > 3 else ''}" if names else ""
            digests = f"sha256 {self.sha256[:8] or 'none'}, now {now.sha256[:8]}"
            return f"was changed{which} ({self.size:,} bytes, now {now.size:,}; {digests})"
        if self.revision and now.revision and self.revision != now.revision:
            return f"has another revision on the hub ({self.revision[:8]}, now {now.revision[:8]})"
        return ""

    def is_called(self, name: str) -> bool:
        return name in (self.name, self.text, self.path, os.path.basename(self.path)) or name in self.files


def references(recipe: BaseModel) -> list[Input]:
    """Return everything that a recipe names by path, not looked at yet."""
    named: dict[tuple[str, str], str] = {}
    for key, value, makes in walk(recipe):
        if isinstance(value, ReadsFiles):
            named |= {(key, file): "data" for file in value.files_read()}
        if isinstance(value, KindSection) and ":" in value.kind:
            named[f"{key}.kind", value.kind] = "python"
        elif isinstance(value, str) and value and makes and stage_of(value) is None:
            named[key, value] = makes
            adapters = Path(resolve(value)) / "adapter_config.json"
            if makes in ("model", "reward_model") and adapters.is_file():
                base = json.loads(adapters.read_text(encoding="utf-8")).get("base_model_name_or_path")
                named |= {(f"{key}.base_model", base): "model"} if isinstance(base, str) else {}
        elif isinstance(value, str) and (location := Place.of(value)) and location.file.is_file():
            named[key, value] = "python"
    inputs, counts = list[Input](), dict[str, int]()
    for (key, text), kind in named.items():
        counts[key] = counts.get(key, 0) + 1
        inputs.append(Input.named(f"{key}[{counts[key]}]" if counts[key] > 1 else key, text, kind))
    return inputs


def keep(run: Path, inputs: Sequence[Input], accepted: Sequence[Mapping[str, Any]] = ()) -> None:
    """Write what was taken, and copy the user's Python."""
    kept = []
    for item in inputs:
        if item.makes == "python" and item.sha256 and not item.copy:
            folder = Path("sources") / f"{Path(item.path).stem}-{item.sha256[:8]}"
            root = Path(os.path.commonpath([file.parent for file in written_in(Path(item.path))]))
            for name in item.files:
                with translated_disk_errors(run):
                    (run / folder / name).parent.mkdir(parents=True, exist_ok=True)
                write_file(run / folder / name, (root / name).read_bytes())
            item = replace(item, copy=str(folder / os.path.relpath(item.path, root)))
        elif not item.sha256 and not item.revision and item.makes != "place":
            item = replace(item, revision=_revision(item.path, item.makes))  # its model was loaded only now
        kept.append({name: value for name, value in asdict(item).items() if value})
    content = {"inputs": kept, **({"accepted": list(accepted)} if accepted else {})}
    write_file(run / INPUTS, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())


def recorded(run: Path) -> tuple[list[Input], list[dict[str, Any]]]:
    """Return the inputs of a run as they were taken, and the changes that were accepted since; both may be empty.

    Raises CheckpointError: the file cannot be read.
    """
    try:
        content = json.loads((run / INPUTS).read_text(encoding="utf-8"))
        return [Input(**entry) for entry in content["inputs"]], content.get("accepted", [])
    except (FileNotFoundError, NotADirectoryError):
        return [], []
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{run / INPUTS} is damaged: {error}") from None


def compare(run: Path, now: Sequence[Input], accept: Sequence[str], way_out: str) -> None:
    """Compare a run's inputs with today's before it resumes; what is accepted by name is recorded.

    Raises CheckpointError: one was changed or is missing; the sentence ends in the way out.
    """
    before, accepted = recorded(run)
    if not before:
        warnings.warn(f"{run} has no {INPUTS}: nobody knows whether its inputs changed until now", stacklevel=2)
        keep(run, [item.taken() for item in now])
        return
    todays, faults, kept = {item.name: item.taken() for item in now}, list[str](), list[Input]()
    for item in before:
        today = todays.get(item.name)  # a key that is gone is a difference of the recipe
        difference = item.difference(today) if today else ""
        is_moved = today is not None and not difference and item.path != today.path
        if today and (difference or is_moved) and difference != "is missing" and any(map(today.is_called, accept)):
            change = {"input": item.name, "was": item.sha256 or item.revision, "is": today.sha256 or today.revision}
            accepted.append({"number": len(accepted) + 1, **change} | ({"moved": True} if is_moved else {}))
            kept.append(replace(today, text=item.text))
            continue
        if today and difference:
            faults.append(f"{item.name}, {today.path}, {difference}")
        kept.append(item)
    if faults:
        raise CheckpointError(f"{run} cannot go on, since of what it reads {'; '.join(faults)}. {way_out}")
    if kept != before:
        keep(run, kept, accepted)


def check_names(inputs: Sequence[Input], accept: Sequence[str]) -> None:
    """Raise ConfigError where a name of `--accept-changed` is that of no input."""
    for name in accept:
        if not any(item.is_called(name) for item in inputs):
            names = ", ".join(item.name for item in inputs if item.makes != "place")
            raise ConfigError(f"--accept-changed {name}: no input of the run has this name; its inputs are {names}")


def with_paths(tables: Mapping[str, Any], inputs: Sequence[Input]) -> dict[str, Any]:
    """Return a recipe's tables with the absolute path in place of every reference."""
    result = dict(tables)
    for item in inputs:
        location = Place.of(item.text)
        path = f"{item.path}:{location.name}" if location else item.path
        if location or item.makes != "python":
            result = _replaced(result, item.name.partition("[")[0].split("."), item.text, path)
    return result


def located(tables: Mapping[str, Any], config: Path) -> dict[str, Any]:
    """Return the tables of a run's recipe, whose paths mean what they meant at its start, wherever this process works.

    The user's Python is the run's copy where the original was changed or is gone; of all else that is gone the text
    stays as it is.
    """
    run, inputs = config.parent, list[Input]()
    if config.name != "config.toml":
        return dict(tables)
    for item in recorded(run)[0]:
        if item.makes == "python" and item.copy and item.difference(item.taken()):
            inputs.append(replace(item, path=str((run / item.copy).resolve())))
        elif os.path.exists(item.path):
            inputs.append(item)
    return with_paths(tables, inputs)


def _replaced(value: Any, keys: Sequence[str], text: str, path: str) -> Any:
    if isinstance(value, Mapping) and keys:
        return {name: _replaced(v, keys[1:], text, path) if name == keys[0] else v for name, v in value.items()}
    if isinstance(value, list):
        return [_replaced(item, keys, text, path) for item in value]
    return path if value == text and not keys else value


def _revision(name: str, makes: str) -> str:
    """The commit of a name on the hub: what the hub says, else the one in its cache; empty where nobody knows it."""
    kind = "model" if makes in ("model", "reward_model") else "dataset"
    if os.path.isabs(name) or (kind == "dataset" and not name.startswith("hub:")):
        return ""
    from huggingface_hub import HfApi, constants  # takes half a second

    name = name.removeprefix("hub:").partition(":")[0]
    try:
        return str(HfApi().repo_info(name, repo_type=kind, timeout=5.0).sha)
    except Exception:  # of the name, the connection, or what the hub answered
        ref = Path(constants.HF_HUB_CACHE) / f"{kind}s--{name.replace('/', '--')}" / "refs" / "main"
        return ref.read_text(encoding="utf-8").strip() if ref.is_file() else ""
