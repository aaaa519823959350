"""The folder through which weights go to the servers: one directory for each version, whole or not there at all."""

import shutil
import tempfile
import weakref
from pathlib import Path

from safetensors import safe_open
from torch import Tensor

from groupwise.errors import InvariantError
from groupwise.models.backbone import Saved
from groupwise.models.checkpoint import WEIGHTS, save_for_serving
from groupwise.models.policy import Policy
from groupwise.runs.atomic import new_directory

KEPT = 2
"""Directories that stay: that of the day, and the one before it, which a slow server may still be reading."""


class WeightsFolder:
    """Writes versions of the weights and deletes those that nobody reads any more."""

    def __init__(self, path: str) -> None:
        """A folder of its own within `path`; in a temporary one, which goes with the process, where that is empty."""
        if path:
            Path(path).mkdir(parents=True, exist_ok=True)
        self.path = Path(tempfile.mkdtemp(prefix="groupwise-weights-", dir=path or None)).resolve()
        self.path.chmod(0o755)  # a server may run as somebody else
        self._written: dict[str, list[Path]] = {}
        self._layout: dict[str, tuple[int, ...]] = {}
        self.close = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def write(self, policy: Policy, label: str, weights: dict[str, Tensor]) -> Path:
        """A new directory with these weights of a policy.

        Raises:
            CheckpointError: the disk is full or not writable.
            InvariantError: a tensor is missing, new, or of another shape than in the version before.
        """
        directory = self.path / label
        with new_directory(directory) as temporary:
            save_for_serving(policy, temporary, weights)
            self._check(temporary / WEIGHTS)
        return self._keep("weights", directory)

    def write_adapters(self, saved: Saved, name: str) -> Path:
        """A new directory with adapters alone.

        Raises:
            CheckpointError: the disk is full or not writable.
        """
        directory = self.path / name
        with new_directory(directory) as temporary:
            saved.save(temporary)
        return self._keep("adapters", directory)

    def _keep(self, kind: str, directory: Path) -> Path:
        """The newest of a kind stay."""
        written = [*[path for path in self._written.get(kind, ()) if path != directory], directory]
        for old in written[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)
        self._written[kind] = written[-KEPT:]
        return directory

    def _check(self, file: Path) -> None:
        with safe_open(file, "pt") as tensors:
            layout = {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
        self._layout = self._layout or layout
        if layout != self._layout:
            changed = sorted(name for name, _ in self._layout.items() ^ layout.items())
            raise InvariantError(
                f"the weights for the servers have other tensors than in the version before: {', '.join(changed[:3])}"
            )
