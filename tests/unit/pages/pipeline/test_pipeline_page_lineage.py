import re
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.pages.pipeline.data import load_pipeline
from groupwise.pages.pipeline.lineage import HEIGHT, WIDTH, boxes, in_words, label_lines, layers_of, layout
from groupwise.pages.pipeline.page import page

Inputs = dict[str, tuple[str, ...]]


def svg_of(pipeline: Any) -> str:
    """The picture as it stands on the page."""
    html = page(load_pipeline(pipeline.path))
    return html[html.index("<svg") : html.index("</svg>") + len("</svg>")]


@st.composite
def lineages(draw: st.DrawFn) -> Inputs:
    """Up to twelve boxes, each made of any of those before it."""
    names = [f"n{i}" for i in range(draw(st.integers(1, 12)))]
    return {
        name: tuple(draw(st.lists(st.sampled_from(names[:i]), unique=True, max_size=4))) if i else ()
        for i, name in enumerate(names)
    }


@settings(max_examples=30, deadline=None)
@given(lineages())
def test_every_arrow_leads_to_the_right(inputs: Inputs) -> None:
    layers = layers_of(inputs)
    assert all(layers[source] < layers[name] for name, sources in inputs.items() for source in sources)
    assert min(layers.values()) >= 0


@settings(max_examples=30, deadline=None)
@given(lineages())
def test_nothing_overlaps(inputs: Inputs) -> None:
    placed = layout(inputs)
    columns: dict[int, list[float]] = {}
    for (_, layer), height in placed.heights.items():
        columns.setdefault(layer, []).append(height)
    for heights in columns.values():
        ordered = sorted(heights)
        assert all(below - above > 0.99 for above, below in pairwise(ordered))
        assert ordered[0] > -0.01
        assert ordered[-1] < placed.num_rows - 0.99


@settings(max_examples=30, deadline=None)
@given(lineages())
def test_a_long_arrow_has_a_place_in_every_layer_that_it_crosses(inputs: Inputs) -> None:
    placed = layout(inputs)
    for name, sources in inputs.items():
        for source in sources:
            way = placed.way(source, name)
            assert [layer for _, layer in way] == list(range(placed.layers[source], placed.layers[name] + 1))
            assert all(place in placed.heights for place in way)


def test_a_box_stands_near_its_users() -> None:
    layers = layers_of(
        {"base": (), "a": ("base",), "b": ("a",), "pairs": (), "scores": ("pairs",), "c": ("b", "scores")}
    )
    assert layers == {"base": 0, "a": 1, "b": 2, "pairs": 1, "scores": 2, "c": 3}


def test_a_chain_is_a_straight_line() -> None:
    placed = layout({"a": (), "b": ("a",), "c": ("b",)})
    assert set(placed.heights.values()) == {0.0}
    assert placed.num_layers == 3


def test_the_picture_holds_every_stage_and_what_came_from_outside(finished: Any) -> None:
    root = ElementTree.fromstring(svg_of(finished))
    titles = [title.text for title in root.iter("title")]
    assert len(titles) == 13
    assert {"base: start · 42.0 %", "zero: grpo · 93.0 %", "cold_start: 512 rows", "helpful: accuracy 86.3 %",
            "documents.jsonl: from outside"} <= set(titles)  # fmt: skip
    kinds = {title: group.get("class") for group in root.iter("g") for title in (group.findtext("title"),) if title}
    assert kinds["helpful: accuracy 86.3 %"] == "model scores"
    assert kinds["rejection: 2,400 rows"] == "data"
    assert kinds["documents.jsonl: from outside"] == "data outside"


def test_every_box_that_was_made_of_something_has_an_arrow(finished: Any) -> None:
    data = load_pipeline(finished.path)
    svg = svg_of(finished)
    assert svg.count('class="head"') == sum(bool(sources) for _, sources in boxes(data).values()) == 9


def test_boxes_lie_inside_the_picture(finished: Any) -> None:
    root = ElementTree.fromstring(svg_of(finished))
    width, height = (float(root.attrib[name]) for name in ("width", "height"))
    rectangles = list(root.iter("rect"))
    assert len(rectangles) == 8
    for one in rectangles:
        assert 0 <= float(one.attrib["x"]) <= width - WIDTH
        assert 0 <= float(one.attrib["y"]) <= height - HEIGHT


def test_colours_are_those_of_the_page(finished: Any) -> None:
    assert not re.search(r"#[0-9a-f]{3}|rgb|style=", svg_of(finished))


def test_the_lineage_in_words(finished: Any) -> None:
    found = in_words(load_pipeline(finished.path))
    assert found.startswith("zero from base; cold_start from base, zero; cold_sft from base, cold_start; ")


@pytest.mark.parametrize(
    ("label", "lines"),
    [
        ("zero", ["zero"]),
        ("reasoning_rl", ["reasoning_rl"]),
        ("preferences_harmless", ["preferences_", "harmless"]),
        ("demonstrations", ["demonstrations"]),
        ("documents.jsonl", ["documents.", "jsonl"]),
        ("a" * 40, ["a" * 14, "…"]),
        ("", [""]),
    ],
)
def test_labels_fit_their_boxes(label: str, lines: list[str]) -> None:
    assert label_lines(label) == lines
