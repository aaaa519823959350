"""JSON extraction: a text states facts about orders; some facts about one order are asked for, in a given JSON schema.

The text also states what must be left out: other orders, and facts that the schema has no field for.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

from pydantic import Field

from groupwise.randomness import Draw, key
from groupwise.tasks.base import Candidate, DrawnTask, GeneratedConfig
from groupwise.types import Problem


class _Fact(NamedTuple):
    """A field: its JSON schema, how a value is drawn and how it is put into words."""

    schema: Mapping[str, Any]
    draw: Callable[[Draw], Any]
    say: Callable[[Any], str]


_NAMES = ("Ada Brook", "Ben Ortiz", "Carla Weiss", "Daniel Okoro", "Elena Rossi", "Farid Haddad", "Greta Lind")
_ITEMS = ("desk lamp", "oak chair", "tea kettle", "wool blanket", "road bike", "rain coat", "hand drill")
_LABELS = ("fragile", "gift", "heavy", "urgent", "return", "sample")
_CITIES = ("Porto", "Lyon", "Graz", "Leeds", "Turku", "Bergen")
_STREETS = ("Mill Lane", "Station Road", "High Street", "Park Row")
_TEXT = {"type": "string"}

FACTS: Mapping[str, _Fact] = {
    "customer": _Fact(_TEXT, lambda draw: draw.choice(_NAMES), "It was placed by {}.".format),
    "item": _Fact(_TEXT, lambda draw: draw.choice(_ITEMS), "The article is called {}.".format),
    "quantity": _Fact({"type": "integer"}, lambda draw: draw.integer(2, 60), "The number of pieces is {}.".format),
    "unit_price": _Fact(
        {"type": "number"},
        lambda draw: (100 * draw.integer(1, 200) + draw.integer(1, 99)) / 100,
        "One piece costs {:.2f} euros.".format,
    ),
    "express": _Fact(
        {"type": "boolean"},
        lambda draw: draw.choice((True, False)),
        lambda express: "It goes by express." if express else "It does not go by express.",
    ),
    "discount_percent": _Fact(
        {"type": ["integer", "null"]},
        lambda draw: draw.choice((None, 5, 10, 15, 20)),
        lambda percent: "No discount was agreed." if percent is None else f"A discount of {percent} % was agreed.",
    ),
    "labels": _Fact(
        {"type": "array", "items": _TEXT},
        lambda draw: draw.shuffled(_LABELS)[: draw.integer(1, 3)],
        lambda labels: f"Its labels are, in this order: {', '.join(labels)}.",
    ),
    "address": _Fact(
        {
            "type": "object",
            "properties": {"street": _TEXT, "house": {"type": "integer"}, "city": _TEXT},
            "required": ["street", "house", "city"],
            "additionalProperties": False,
        },
        lambda draw: {"street": draw.choice(_STREETS), "house": draw.integer(1, 99), "city": draw.choice(_CITIES)},
        lambda address: f"It is sent to {address['house']} {address['street']} in {address['city']}.",
    ),
}
"""Facts of an order by the name of their field."""
ASKED = 2, 4
"""Fewest and most fields asked for."""


class JsonExtractionConfig(GeneratedConfig):
    """Dials of the JSON extraction task."""

    num_extra_facts: int = Field(default=1, ge=0, le=len(FACTS))
    """Facts of each order that are stated and not asked for, as far as there are any."""
    num_orders: int = Field(default=2, ge=1, le=5)
    """Orders in the text; one of them is asked for."""


class JsonExtraction(DrawnTask):
    """Problems such as `Order 512. It was placed by Ada Brook. ... Give order 512 as JSON ...`."""

    name: ClassVar[str] = "json_extraction"
    verifier: ClassVar[str] = "json"
    Config = JsonExtractionConfig
    config: JsonExtractionConfig

    def draw(self, index: int) -> Candidate:
        return draw_extraction(Draw("json_extraction", index), self.config)


def draw_extraction(draw: Draw, config: JsonExtractionConfig) -> Candidate:
    """A problem; its content is the whole question."""
    num_fields = draw.integer(*ASKED)
    fields = draw.shuffled(list(FACTS))[: num_fields + config.num_extra_facts]
    asked_fields = fields[:num_fields]
    lowest = draw.integer(100, 900)
    numbers = draw.shuffled(range(lowest, lowest + config.num_orders))
    orders = {number: {name: FACTS[name].draw(draw) for name in fields} for number in numbers}
    paragraphs = [
        f"Order {number}. {' '.join(draw.shuffled([FACTS[name].say(value) for name, value in facts.items()]))}"
        for number, facts in orders.items()
    ]
    number = draw.choice(numbers)
    request = f"Give order {number} as one JSON value that fits this schema: {json.dumps(schema_of(asked_fields))}"
    question = "\n".join([*paragraphs, request])
    reference = json.dumps({name: orders[number][name] for name in asked_fields})
    name = f"json_extraction/{key('json_extraction', question):016x}"
    return question, Problem(name, question, reference, f"json {num_fields} fields")


def schema_of(names: list[str]) -> dict[str, Any]:
    """The JSON schema of an object with these fields and no other."""
    properties = {name: FACTS[name].schema for name in names}
    return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}
