"""Knights and knaves: the role of everyone named in the reference answer, each named once and nothing else said."""

import re

from groupwise.verifiers.logic.base import ReferenceVerifier, UnreadableError, plain, shown

Roles = dict[str, str]
"""Role by name, both in lower case."""

_SEPARATOR = re.compile(r"[,;\n]|\band\b", re.IGNORECASE)
_CLAIM = re.compile(
    r"(?:\(?[0-9]{1,2}[).:] ?)?(?P<name>[^:=]{1,60}?) ?(?: is(?: an?)?|:|=) ?(?P<role>knight|knave)", re.IGNORECASE
)


class KnightsKnavesVerifier(ReferenceVerifier[Roles]):
    """Reads `Zoey is a knight, Ella is a knave` (also `Zoey: knight`, numbered lines, `and`) in any order and case."""

    def read(self, text: str) -> Roles:
        roles: Roles = {}
        for claim in _SEPARATOR.split(plain(text).rstrip(".")):
            if claim.strip():
                name, role = _read_claim(claim.strip())
                if name in roles:
                    raise UnreadableError(f"{shown(name)} is named twice")
                roles[name] = role
        return roles

    def difference(self, found: Roles, wanted: Roles) -> str:
        for name in [*wanted, *found]:
            if found.get(name) != wanted.get(name):
                return (
                    f"{shown(name)} is said to be {found.get(name, 'nothing')}, not {wanted.get(name, 'asked about')}"
                )
        return ""

    def canonical(self, content: Roles) -> str:
        return ", ".join(f"{name}: {role}" for name, role in sorted(content.items()))


def _read_claim(claim: str) -> tuple[str, str]:
    match = _CLAIM.fullmatch(claim)
    if match is None:
        raise UnreadableError(f"{shown(claim)} is not of the form `name is a knight` or `name is a knave`")
    return match["name"].casefold(), match["role"].lower()
