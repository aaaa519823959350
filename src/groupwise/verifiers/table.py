"""The verifiers and the reward parts by name. To add one: a module here, and a line below.

Nothing is imported before it is chosen, so this file stands below all others of the room.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from groupwise.config.kinds import Kinds
from groupwise.config.places import beside
from groupwise.errors import ConfigError

_HERE = "groupwise.verifiers"

VERIFIERS = Kinds(
    "verifier",
    {
        "math": f"{_HERE}.math:MathVerifier",
        "number": f"{_HERE}.math:NumberVerifier",
        "countdown": "worlds/countdown.py:CountdownVerifier",
        "code": f"{_HERE}.code:CodeVerifier",
        "program": f"{_HERE}.code:ProgramVerifier",
        "judge": f"{_HERE}.judge:JudgeVerifier",
        "knights_knaves": "worlds/knights_knaves.py:KnightsKnavesVerifier",
        "json": f"{_HERE}.strict_json:JsonVerifier",
        "instructions": "worlds/instructions.py:InstructionsVerifier",
        "propositional_proof": "worlds/natural_deduction.py:PropositionalVerifier",
        "coq": f"{_HERE}.proofs.coq:CoqVerifier",
        "lean": f"{_HERE}.proofs.lean:LeanVerifier",
        "reasoning_gym": "worlds/gym_problems.py:ReasoningGymVerifier",
        "ifeval": f"{_HERE}.ifeval:IfevalVerifier",
        "harness": f"{_HERE}.harness:HarnessVerifier",
        "answered": f"{_HERE}.unjudged:AnsweredVerifier",
        "episode": f"{_HERE}.unjudged:EpisodeVerifier",
        "routed": f"{_HERE}.composition:RoutedVerifier",
    },
    adopt=f"{_HERE}.python:adopt",
)

PARTS = Kinds(
    "reward part",
    {
        "format": f"{_HERE}.style:FormatPart",
        "language": f"{_HERE}.style.language:LanguagePart",
        "overlong": f"{_HERE}.style:OverlongPart",
        "cosine_length": f"{_HERE}.style:CosineLengthPart",
        "repetition": f"{_HERE}.style:RepetitionPart",
        "calls": f"{_HERE}.style:CallsPart",
        "verifier": f"{_HERE}.composition:VerifierPart",
    },
    adopt=f"{_HERE}.composition:adopt_part",
)
"""Parts of the reward beside the answer. A part has a bounded measure, and earns weight times measure where its gate is
open."""


def with_shared(section: Any, defaults: Mapping[str, Any], folder: Path | None) -> Any:
    """Lay a verifier's table or name over the defaults that its kind reads."""
    kind = VERIFIERS.kind_of(section)
    if kind is None or not isinstance(section, Mapping | str):
        return section
    try:
        fields = VERIFIERS.settings(beside(kind, folder)).model_fields
    except ConfigError:
        return section  # its fault is reported where it is read
    table = section if isinstance(section, Mapping) else {"kind": section}
    return {**{key: value for key, value in defaults.items() if key in fields}, **table}


def part_with_shared(part: Any, defaults: Mapping[str, Any], folder: Path | None) -> Any:
    """Lay the verifier of a part, where it has one, over the defaults that its kind reads."""
    kind = PARTS.kind_of(part)
    if kind is None or not isinstance(part, Mapping | str):
        return part
    try:
        if "verifier" not in PARTS.settings(beside(kind, folder)).model_fields:
            return part
    except ConfigError:
        return part  # its fault is reported where it is read
    table = {"verifier": kind} if kind not in PARTS.table else {}  # a function is its own verifier
    table |= part if isinstance(part, Mapping) else {"kind": kind}
    return {**table, "verifier": with_shared(table["verifier"], defaults, folder)} if "verifier" in table else table
