"""The verifiers by name. To add one: a module here, and a line below."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from groupwise.config.kinds import Kinds
from groupwise.config.places import Place, beside
from groupwise.errors import ConfigError

_HERE = "groupwise.verifiers"


def _adopt(place: Place) -> type:
    """The verifier in a user's file: a class, or a function to judge by."""
    from groupwise.verifiers.python import adopt  # not before: it is a verifier, and uses this table

    return adopt(place)


VERIFIERS = Kinds(
    "verifier",
    {
        "math": f"{_HERE}.math:MathVerifier",
        "number": f"{_HERE}.math:NumberVerifier",
        "countdown": f"{_HERE}.countdown:CountdownVerifier",
        "code": f"{_HERE}.code:CodeVerifier",
        "program": f"{_HERE}.program:ProgramVerifier",
        "judge": f"{_HERE}.judge.verifier:JudgeVerifier",
        "knights_knaves": f"{_HERE}.logic.puzzles:KnightsKnavesVerifier",
        "json": f"{_HERE}.logic.json_text:JsonVerifier",
        "instructions": f"{_HERE}.logic.instructions:InstructionsVerifier",
        "game_move": f"{_HERE}.logic.puzzles:GameMoveVerifier",
        "propositional_proof": f"{_HERE}.proofs.propositional:PropositionalVerifier",
        "coq": f"{_HERE}.proofs.coq:CoqVerifier",
        "lean": f"{_HERE}.proofs.lean:LeanVerifier",
        "reasoning_gym": f"{_HERE}.reasoning_gym:ReasoningGymVerifier",
        "answered": f"{_HERE}.answered:AnsweredVerifier",
        "routed": f"{_HERE}.routed:RoutedVerifier",
    },
    adopt=_adopt,
)
"""Where each is defined."""


def with_shared(section: Any, defaults: Mapping[str, Any], folder: Path | None) -> Any:
    """A verifier's table or name, laid over the defaults that its kind reads."""
    kind = VERIFIERS.kind_of(section)
    if kind is None or not isinstance(section, Mapping | str):
        return section
    try:
        fields = VERIFIERS.settings(beside(kind, folder)).model_fields
    except ConfigError:
        return section  # its fault is reported where it is read
    table = section if isinstance(section, Mapping) else {"kind": section}
    return {**{key: value for key, value in defaults.items() if key in fields}, **table}
