"""What can be set about proof assistants; our own kernels need nothing."""

from typing import Annotated

from pydantic import Field

from groupwise.config import ReadIf, Section

PATIENCE = 8
"""By the clock a check may take so many times its limit, for the machine may be busy; then the verifier timed out."""


class ProofConfig(Section):
    """What checking one proof may take."""

    timeout_s: float = Field(default=30.0, gt=0, allow_inf_nan=False)
    """Seconds of processor time that checking one proof may take (of a Lean server: its own limit); a slower proof is
    wrong. Eight times as long by the clock and the outcome is `timeout`, for then the machine is to blame."""
    memory_mb: int = Field(default=4096, ge=256)
    """Memory in MiB that checking one proof may take in the sandbox. Mathlib needs about 4096."""


class LeanConfig(ProofConfig):
    """How the verifier `lean` checks proofs."""

    lean_url: str = Field(default="", pattern=r"^(https?://\S+)?$")
    """Base address of a Lean server, for example `http://localhost:8000`; empty: the program `lean` in the sandbox."""
    lean_path: Annotated[str, ReadIf(lambda proof: not proof.lean_url, "an empty lean_url")] = Field(
        default="", pattern=r"^(/usr/[^:]*(:/usr/[^:]*)*)?$"
    )
    """Directories of compiled libraries (Mathlib) for the program `lean`, below /usr, which the sandbox shows."""
