"""JSON extraction: a text states facts about orders, members, events, samples, books or trips; some are asked for.

The answer is a JSON value that fits a schema, which is drawn anew for every problem, at a level of difficulty. Two
problems that ask for the same fields are in the same split, so a schema of dev or test was never trained on.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, ClassVar, NamedTuple

from pydantic import Field, field_validator

from groupwise.randomness import Draw, key
from groupwise.tasks.base import Candidate, GeneratedConfig, GeneratedTask, Template
from groupwise.types import Problem


class _Fact(NamedTuple):
    """Something that may be asked for: the names that its field may have, its form, a draw of a value, its sentence."""

    names: tuple[str, ...]
    form: str
    schema: Mapping[str, Any]
    draw: Callable[[Draw], Any]
    say: Callable[[Any], str]


def _text(names: str, values: str, sentence: str) -> _Fact:
    texts = values.split(", ")
    return _Fact(tuple(names.split()), "plain", {"type": "string"}, lambda draw: draw.choice(texts), sentence.format)


def _whole(names: str, low: int, high: int, sentence: str) -> _Fact:
    draw = lambda draw: draw.integer(low, high)  # noqa: E731
    return _Fact(tuple(names.split()), "plain", {"type": "integer"}, draw, sentence.format)


def _flag(names: str, yes: str, no: str) -> _Fact:
    draw, say = (lambda draw: draw.choice((True, False))), (lambda value: yes if value else no)
    return _Fact(tuple(names.split()), "plain", {"type": "boolean"}, draw, say)


def _enum(names: str, values: str, sentence: str) -> _Fact:
    texts = values.split(", ")
    schema = {"type": "string", "enum": texts}
    return _Fact(tuple(names.split()), "enum", schema, lambda draw: draw.choice(texts), sentence.format)


def _number(names: str, high: int, sentence: str) -> _Fact:
    """A number of one decimal from 0 to a bound; its last digit is never 0, so that it has one spelling."""
    draw = lambda draw: round(draw.integer(0, high - 1) + draw.integer(1, 9) / 10, 1)  # noqa: E731
    return _Fact(
        tuple(names.split()), "bounds", {"type": "number", "minimum": 0, "maximum": high}, draw, sentence.format
    )


def _list(names: str, values: str, sentence: str) -> _Fact:
    texts = values.split(", ")
    schema = {"type": "array", "items": {"type": "string"}}
    draw = lambda draw: draw.shuffled(texts)[: draw.integer(1, 3)]  # noqa: E731
    return _Fact(tuple(names.split()), "array", schema, draw, lambda items: sentence.format(", ".join(items)))


def _object(names: str, members: tuple[_Fact, ...], sentence: str) -> _Fact:
    facts = {member.names[0]: member for member in members}
    schema = schema_of({name: member.schema for name, member in facts.items()})
    draw = lambda draw: {name: member.draw(draw) for name, member in facts.items()}  # noqa: E731
    return _Fact(tuple(names.split()), "nested", schema, draw, lambda value: sentence.format(**value))


def schema_of(fields: Mapping[str, Mapping[str, Any]], optional: str = "") -> dict[str, Any]:
    """The JSON schema of an object with these fields and no other; all but the optional one are required."""
    required = [name for name in fields if name != optional]
    return {"type": "object", "properties": dict(fields), "required": required, "additionalProperties": False}


_PEOPLE = "Ada Brook, Ben Ortiz, Carla Weiss, Daniel Okoro, Elena Rossi, Farid Haddad, Greta Lind, Hugo Martin"
_CITIES = "Porto, Lyon, Graz, Leeds, Turku, Bergen, Gdansk, Malaga"
_DAYS = "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday"
_STREETS = "Mill Lane, Station Road, High Street, Park Row"
_CITY, _STREET = _text("city", _CITIES, "{}"), _text("street", _STREETS, "{}")

FACTS: Mapping[str, tuple[_Fact, ...]] = {
    "Order": (
        _text("customer buyer", _PEOPLE, "It was placed by {}."),
        _text("item article", "desk lamp, oak chair, tea kettle, road bike, hand drill", "It is for a {}."),
        _text("city destination", _CITIES, "It goes to {}."),
        _text("carrier shipped_by", "Postal Blue, Red Van, Swift Freight", "The carrier is {}."),
        _whole("quantity pieces", 2, 60, "The number of pieces is {}."),
        _whole("weight_kg kilograms", 2, 90, "It weighs {} kg."),
        _flag("express urgent", "It goes by express.", "It does not go by express."),
        _flag("gift is_gift", "It is a gift.", "It is not a gift."),
        _enum("status state", "open, paid, shipped, returned", "Its status is: {}."),
        _enum("payment paid_by", "card, cash, invoice", "Payment is by {}."),
        _number("price euros", 500, "One piece costs {} euros."),
        _number("discount rebate", 40, "The discount is {} percent."),
        _list("labels marks", "fragile, heavy, cold, return, sample", "Its labels are, in this order: {}."),
        _object("address ship_to", (_STREET, _CITY), "It is sent to {street} in {city}."),
    ),
    "Member": (
        _text("name full_name", _PEOPLE, "The name is {}."),
        _text("city town", _CITIES, "The home is in {}."),
        _text("job profession", "baker, nurse, welder, teacher, farmer, printer", "The job is {}."),
        _text("team group", "Falcons, Otters, Badgers, Herons", "The team is called {}."),
        _whole("age years", 18, 80, "The age is {} years."),
        _whole("children kids", 2, 6, "There are {} children."),
        _flag("active is_active", "The member is active.", "The member is not active."),
        _flag("smoker smokes", "The member smokes.", "The member does not smoke."),
        _enum("level rank", "bronze, silver, gold", "The level is {}."),
        _enum("shift hours", "morning, evening, night", "The usual shift is {}."),
        _number("height_m height", 3, "The height is {} metres."),
        _number("rating score", 10, "The rating is {} points."),
        _list("hobbies interests", "chess, rowing, choir, pottery, running", "The hobbies are, in this order: {}."),
        _object("contact address", (_STREET, _CITY), "Letters go to {street} in {city}."),
    ),
    "Event": (
        _text("title name", "Harvest Fair, Book Night, Jazz Evening, City Run, Robot Show", "It is called {}."),
        _text("place venue", "Town Hall, Old Mill, Riverside Park, Gallery Nine", "It takes place at {}."),
        _text("host organizer", _PEOPLE, "The host is {}."),
        _text("day weekday", _DAYS, "It is on {}."),
        _whole("guests visitors", 20, 900, "{} guests are expected."),
        _whole("start_hour hour", 8, 21, "It starts at {} o'clock."),
        _flag("free free_entry", "Entry is free.", "Entry is not free."),
        _flag("outdoor outside", "It is held outdoors.", "It is not held outdoors."),
        _enum("kind category", "concert, market, talk, race", "It is a {}."),
        _enum("audience for_whom", "adults, children, everyone", "It is meant for {}."),
        _number("fee ticket_price", 90, "A ticket costs {} euros."),
        _number("length_h duration", 12, "It lasts {} hours."),
        _list("sponsors partners", "Lumen, Norda, Kestrel, Pomona, Tiber", "The sponsors are, in this order: {}."),
        _object("location site", (_STREET, _CITY), "The way there is {street} in {city}."),
    ),
    "Sample": (
        _text("site source", "North Lake, Well Seven, Salt Marsh, Upper Dam", "It was taken at {}."),
        _text("taken_by sampler", _PEOPLE, "It was taken by {}."),
        _text("material substance", "sand, clay, water, peat, gravel", "It consists of {}."),
        _text("device instrument", "Probe A, Probe B, Sonde Nine", "The device was {}."),
        _whole("depth_m depth", 2, 70, "The depth was {} metres."),
        _whole("volume_ml volume", 10, 800, "The volume is {} millilitres."),
        _flag("sterile is_sterile", "It is sterile.", "It is not sterile."),
        _flag("frozen was_frozen", "It was frozen.", "It was not frozen."),
        _enum("quality grade", "good, fair, poor", "The quality is {}."),
        _enum("colour hue", "brown, grey, green, clear", "The colour is {}."),
        _number("ph acidity", 14, "The pH is {}."),
        _number("salt_percent salinity", 30, "The salt content is {} percent."),
        _list("tests analyses", "lead, nitrate, iron, zinc, oxygen", "It is tested, in this order, for: {}."),
        _object("storage kept_in", (_text("room", "Cold Room, Attic, Cellar", "{}"), _whole("shelf", 2, 30, "{}")),
                "It is kept in the {room} on shelf {shelf}."),
    ),
    "Book": (
        _text("title name", "Silent Tides, Paper Moons, Iron Garden, Last Orchard, Glass Hill", "The title is {}."),
        _text("author writer", _PEOPLE, "It was written by {}."),
        _text("publisher press", "Alder House, Quill Press, Beacon Row", "The publisher is {}."),
        _text("language written_in", "English, French, German, Polish, Danish", "The language is {}."),
        _whole("pages page_count", 90, 900, "It has {} pages."),
        _whole("year published", 1950, 2024, "It appeared in {}."),
        _flag("lent on_loan", "It is lent out.", "It is not lent out."),
        _flag("signed has_autograph", "It is signed.", "It is not signed."),
        _enum("genre kind", "novel, poetry, history, travel", "The genre is {}."),
        _enum("binding cover", "hardback, paperback, leather", "The binding is {}."),
        _number("price cost", 80, "The price is {} euros."),
        _number("rating stars", 5, "Readers give it {} stars."),
        _list("topics themes", "sea, war, love, music, winter", "The topics are, in this order: {}."),
        _object("copy stock", (_whole("shelf", 2, 60, "{}"), _CITY), "A copy is on shelf {shelf} in {city}."),
    ),
    "Trip": (
        _text("traveller passenger", _PEOPLE, "The traveller is {}."),
        _text("origin departs_from", _CITIES, "It begins in {}."),
        _text("goal arrives_in", "Oslo, Ghent, Basel, Split, Derry", "It ends in {}."),
        _text("day date", _DAYS, "It is on {}."),
        _whole("bags luggage", 2, 8, "There are {} bags."),
        _whole("distance_km kilometres", 40, 990, "The distance is {} kilometres."),
        _flag("return round_trip", "A return is booked.", "No return is booked."),
        _flag("insured has_insurance", "It is insured.", "It is not insured."),
        _enum("vehicle transport", "train, bus, ferry, plane", "It goes by {}."),
        _enum("class comfort", "first, second, economy", "The class is {}."),
        _number("fare price", 400, "The fare is {} euros."),
        _number("hours duration", 24, "It takes {} hours."),
        _list("stops via", "Ulm, Metz, Lodz, Brno, Nice", "The stops are, in this order: {}."),
        _object("hotel stay", (_text("name", "Grand Arms, Blue Inn, Park View", "{}"), _whole("nights", 2, 9, "{}")),
                "The hotel is {name}, for {nights} nights."),
    ),
}  # fmt: skip
"""Facts by the kind of thing that a text is about."""

LEVELS: tuple[tuple[str, int, int, str], ...] = (
    ("two fields", 2, 2, "plain"),
    ("up to four fields", 3, 4, "plain"),
    ("a choice", 2, 4, "enum"),
    ("a bounded number", 2, 4, "bounds"),
    ("an optional field", 3, 4, "optional"),
    ("an array", 2, 4, "array"),
    ("an object", 2, 4, "nested"),
)
"""Levels from 1: what its schemas have, fewest and most fields, the form that one of the fields has at least."""

_REQUEST = (
    "Give the facts of the text as one JSON value that fits the schema, and nothing else.\n\nSchema: {}\nText: {}"
)


_SCHEMA = schema_of({"colour": {"type": "string"}, "windows": {"type": "integer"}})
EXAMPLE = (
    _REQUEST.format(json.dumps(_SCHEMA), "Room 7. It has 3 windows. It is painted blue."),
    '{"colour": "blue", "windows": 3}',
)
"""The example that every prompt begins with: question and answer."""


class ExampleFirst(Template):
    """The example before the question, for a chat model as a turn of its own.

    Within the question SmolLM2-135M-Instruct takes the schema for the answer.
    """

    prompt: str = "{question}"
    """The text around the question."""
    gold: str = "{reference}"
    """An ideal answer: the bare JSON. One fenced block is an answer, too."""

    def render(self, problem: Problem) -> str:
        return "{}\nJSON: {}\n\n{}\nJSON:".format(*EXAMPLE, super().render(problem))

    def messages(self, problem: Problem) -> list[dict[str, Any]]:
        *system, question = super().messages(problem)
        example, answer = EXAMPLE
        turns = [{"role": "user", "content": example}, {"role": "assistant", "content": answer}]
        return [*system, *turns, {**question, "content": super().render(problem)}]


class JsonExtractionConfig(GeneratedConfig):
    """Dials of the JSON extraction task."""

    template: ExampleFirst = ExampleFirst()
    """Makes the prompt of a problem."""
    levels: tuple[int, ...] = tuple(range(1, len(LEVELS) + 1))
    """Levels of the schemas, in equal parts: 1 two fields (text, whole number, truth value), 2 three or four of them, 3
    with a choice (`enum`), 4 a number with bounds, 5 a field that may be missing, 6 an array, 7 an object inside."""
    num_extra_facts: int = Field(default=1, ge=0, le=8)
    """Facts of each thing that are stated and not asked for."""

    @field_validator("levels")
    @classmethod
    def _check_levels(cls, levels: tuple[int, ...]) -> tuple[int, ...]:
        if not levels or not set(levels) <= set(range(1, len(LEVELS) + 1)):
            raise ValueError(f"levels = {list(levels)}; allowed are one or more of 1 to {len(LEVELS)}")
        return levels


class JsonExtraction(GeneratedTask):
    """Problems such as `Give the facts of the text as one JSON value ... Schema: {...} Text: Order 512. It was ...`."""

    name: ClassVar[str] = "json_extraction"
    verifier: ClassVar[str] = "json"
    answers_any_question: ClassVar[bool] = False
    Config = JsonExtractionConfig
    config: JsonExtractionConfig

    def candidates(self) -> Iterator[Candidate]:
        return (draw_extraction(Draw("json_extraction", index), self.config) for index in count())


def draw_extraction(draw: Draw, config: JsonExtractionConfig) -> Candidate:
    """A problem; its content, which decides its split, is the thing and the names of the fields."""
    level, thing = draw.choice(config.levels), draw.choice(list(FACTS))
    what, fewest, most, form = LEVELS[level - 1]
    forms = {"plain", form, *(("enum", "bounds") if level > 5 else ())}
    pool = [fact for fact in FACTS[thing] if fact.form in forms]
    first = draw.choice([fact for fact in pool if fact.form == form] or pool)
    facts = [first, *draw.shuffled([fact for fact in pool if fact is not first])]
    num_fields = draw.integer(fewest, most)
    asked = {draw.choice(fact.names): fact for fact in draw.shuffled(facts[:num_fields])}
    optional = draw.choice(list(asked)) if form == "optional" else ""
    number, _ = draw.integer(100, 900), draw.uniform()  # so that problems are those that were always drawn
    record = {name: fact.draw(draw) for name, fact in asked.items()}
    if optional and draw.integer(0, 1):
        del record[optional]
    sentences = [asked[name].say(value) for name, value in record.items()]
    sentences += [fact.say(fact.draw(draw)) for fact in facts[num_fields : num_fields + config.num_extra_facts]]
    schema = schema_of({name: fact.schema for name, fact in asked.items()}, optional)
    text = f"{thing} {number}. {' '.join(draw.shuffled(sentences))}"
    question = _REQUEST.format(json.dumps(schema), text)
    name = f"json_extraction/{key('json_extraction', question):016x}"
    problem = Problem(name, question, json.dumps(record), f"{level} {what}", data={"schema": schema})
    return " ".join([thing, *sorted(asked)]), problem
