"""constraints.txt is whole: every package that groupwise needs, however far down, has an exact version there."""

import re
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

LOCK = Path(__file__).parents[2] / "constraints.txt"
EXTRAS = ("dev", "docs", "browser")
OF_PLATFORMS = re.compile(r"nvidia-.*|triton|cuda-.*")
"""Packages that torch's builds for cards bring; they are named by torch exactly."""


def needed(names: list[tuple[str, str]]) -> dict[str, str]:
    """Versions of what packages (with an extra each, or none) need, as far as it is installed here."""
    found: dict[str, str] = {}
    for name, extra in names:  # which grows
        for requirement in map(Requirement, metadata.requires(name) or []):
            inner = canonicalize_name(requirement.name)
            is_wanted = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
            if not is_wanted or OF_PLATFORMS.fullmatch(inner):
                continue
            try:
                found[inner] = metadata.version(requirement.name)
            except metadata.PackageNotFoundError:
                continue
            wanted = [(inner, one) for one in ("", *sorted(requirement.extras))]
            names += [one for one in wanted if one not in names]
    return found


def test_every_package_has_its_version_in_the_lock() -> None:
    pairs = re.findall(r"^([\w.-]+)==(\S+)$", LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    locked = {canonicalize_name(name): version for name, version in pairs}
    assert len(locked) == len(pairs)
    found = needed([("groupwise", extra) for extra in ("", *EXTRAS)])
    assert len(found) > 50
    assert sorted(found.keys() - locked.keys() - {"groupwise"}) == []
    assert Version(locked["torch"]).public == Version(found["torch"]).public
