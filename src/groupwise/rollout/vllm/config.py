"""Settings of the vLLM engine."""

from ipaddress import ip_address
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from groupwise.config import ReadIf
from groupwise.config.schema import PlaceRef
from groupwise.models.adapters import Adapters
from groupwise.models.policy import Policy
from groupwise.rollout.engine import EngineConfig

WITH_LAUNCH = ReadIf(lambda engine: engine.launch > 0, "launch above 0")


class VllmConfig(EngineConfig):
    """Servers of vLLM that sample completions."""

    addresses: tuple[str, ...] = ()
    """Servers that somebody else started, each by its address: `["http://127.0.0.1:8000"]`. docs/do/vllm.md has
    the command that starts one."""
    model: str = "policy"
    """The name under which the servers serve the model (`--served-model-name`)."""
    launch: int = Field(0, ge=0)
    """Start this many servers on this machine instead, and end them with the run."""
    environment: Annotated[PlaceRef, WITH_LAUNCH] = ".venv-vllm"
    """The virtual environment in which vLLM is installed; `make vllm` makes this one, with the build for processors."""
    options: Annotated[tuple[str, ...], WITH_LAUNCH] = ()
    """More options for the servers that are started, for example `["--gpu-memory-utilization", "0.5"]`."""
    kv_cache_gib: Annotated[float, WITH_LAUNCH] = Field(1.0, gt=0)
    """Memory of each started server for keys and values, in GiB."""
    start_s: float = Field(600.0, gt=0)
    """Longest wait for the servers at the start of a run, in seconds."""
    directory: PlaceRef = ""
    """Folder for the weights that servers read; trainer and servers must see it under the same path. Empty: a
    temporary one, for servers on this machine."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """In which precision the servers compute; it decides how far their log-probabilities may be from the trainer's."""
    adapters: Literal["merged", "native"] = "merged"
    """Form of the adapters of a run with `[lora]`. `merged`: added to the weights, the whole model at every publish.
    `native`: alone, which is a hundredth of the bytes; servers hold the model that they stand on and add them
    while they sample, so they need `--enable-lora` and take 1.3 times as long (vLLM's documentation)."""
    rehearse: bool = True
    """At the start, publish weights that are changed a little in every tensor, and demand that the servers notice. It
    proves that new weights arrive whole, which a first step with a small learning rate cannot; it takes the memory of
    another copy of the model for that moment."""
    steps_ahead: int = Field(0, ge=0, le=1)
    """1: while the trainer trains on a step, the next one's completions are sampled from the weights that it began
    with. They are one step old when they are trained on, which needs `loss.correction`. 0: from the newest weights,
    and servers and trainer wait for each other."""
    request_s: float = Field(600.0, gt=0)
    """Longest time of one completion, in seconds; afterwards it is asked of another server."""
    patience_s: float = Field(300.0, gt=0)
    """Longest wait while no server is healthy, in seconds; the run then stops."""

    @field_validator("addresses")
    @classmethod
    def _are_addresses(cls, addresses: tuple[str, ...]) -> tuple[str, ...]:
        found = tuple(address.rstrip("/") for address in addresses)
        for address in found:
            parts = urlsplit(address)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.path or parts.query:
                raise ValueError(f"{address!r} is no address of a server; one looks like 'http://127.0.0.1:8000'")
        if len(set(found)) < len(found):
            raise ValueError("an address is there twice: every server stands once, with its own")
        return found

    def adapters_of(self, policy: Policy) -> Adapters | None:
        return policy.adapters if self.adapters == "native" else None

    @property
    def looks_ahead(self) -> bool:
        return self.steps_ahead > 0

    @model_validator(mode="after")
    def _some_servers(self) -> Self:
        if bool(self.addresses) == bool(self.launch):
            raise ValueError(
                f"addresses = {list(self.addresses)} and launch = {self.launch}: exactly one of the two says where "
                "the servers are"
            )
        far = [address for address in self.addresses if not _is_here(address)]
        if far and not self.directory:
            raise ValueError(
                f"directory is empty, but {far[0]} is another machine: name a folder that it sees under the same path"
            )
        return self


def _is_here(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
