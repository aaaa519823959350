"""Opening a sandbox: the tier that was asked for, or an error; never a weaker one in its place."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from groupwise.sandbox.base import Sandbox, SandboxConfig
from groupwise.sandbox.bubblewrap_tier import BubblewrapSandbox
from groupwise.sandbox.landlock_tier import LandlockSandbox
from groupwise.sandbox.remote import RemoteSandbox
from groupwise.sandbox.self_test import check

TIERS: Mapping[str, Callable[[SandboxConfig], Sandbox]] = MappingProxyType(
    {"bubblewrap": BubblewrapSandbox, "landlock": LandlockSandbox, "remote": RemoteSandbox}
)
"""Name, as the configuration states it, to class."""


def open_sandbox(config: SandboxConfig | None = None) -> Sandbox:
    """A sandbox that has just refused everything that the self-test tried.

    Raises:
        SandboxError: there is no such sandbox here, or it let something through; says what to install or set.
    """
    config = config or SandboxConfig()
    sandbox = TIERS[config.tier](config)
    try:
        check(sandbox)
    except BaseException:
        sandbox.close()
        raise
    return sandbox
