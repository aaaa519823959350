"""Everything that can go wrong in a way a user can mend.

The command line prints these as one sentence; of anything else the traceback goes to a file.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class GroupwiseError(Exception):
    """Base of all errors that a user can mend."""


class ConfigError(GroupwiseError):
    """A recipe or option that cannot be used: the key, the value and what is allowed."""


class DataError(GroupwiseError):
    """A data file that cannot be read: the file and the line."""


class ModelError(GroupwiseError):
    """A model or tokenizer that cannot be used."""


class UnsupportedModelError(ModelError):
    """A model whose attention we do not compute; refused by name instead of computed wrongly."""


class CheckpointError(GroupwiseError):
    """A checkpoint or run directory that is damaged, unfinished or of another run."""


class SandboxError(GroupwiseError):
    """No sandbox is available here, or it failed its self-test, and what to install or set; no code is run then."""


class EngineError(GroupwiseError):
    """A server that samples completions is missing, or answers in a way that cannot be trained on."""


class RankError(GroupwiseError):
    """A process that trains together with this one was lost; the run resumes from its checkpoint."""


class VerifierError(GroupwiseError):
    """A verifier that fails too often, or rejects its own reference answers."""


class InvariantError(GroupwiseError):
    """Two computations that must agree do not; training stops rather than continue wrong."""


class WaitingError(GroupwiseError):
    """A person has to do something first; what was done before is kept, and the same call continues from there."""


@contextmanager
def told_as(kind: type[GroupwiseError], sentence: str, *errors: type[Exception]) -> Iterator[None]:
    """Raise errors of these classes as one of ours: the sentence, and what they say."""
    try:
        yield
    except errors as error:
        raise kind(f"{sentence}: {error}") from None
