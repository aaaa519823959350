"""Sections chosen by kind: built in, from a user's file, with errors that name the key and what reads it."""

from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field

from groupwise.config import ReadIf, Section, dump_toml, load, parse
from groupwise.config.kinds import Kinds, KindSection
from groupwise.config.places import written_in
from groupwise.errors import ConfigError
from groupwise.runs.inputs import references


class Shape(KindSection):
    name: str = "x"


class Square(Shape):
    side: float = 1.0


class Circle(Shape):
    radius: float = 1.0


SHAPES = Kinds("shape", {"square": f"{__name__}:Square", "circle": f"{__name__}:Circle"}, default="square")


class Drawing(Section):
    shape: Annotated[KindSection, SHAPES] = Square(kind="square")
    many: dict[str, Annotated[KindSection, SHAPES]] = Field(default_factory=dict)
    coef: float = 0.0
    how: Annotated[str, ReadIf(lambda drawing: drawing.coef > 0, "coef > 0")] = "thin"


OWN = """
from abc import ABC, abstractmethod
from groupwise.config.kinds import KindSection

class Triangle(KindSection):
    base: float = 2.0

class Outline(ABC):
    Config = Triangle

    @abstractmethod
    def area(self): ...

class Loose:
    Config = {"base": 2.0}

def area(side):
    return side
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "shapes.py").write_text(OWN)
    return tmp_path / "shapes.py"


def test_the_section_is_read_by_the_class_of_its_kind() -> None:
    drawing = parse(Drawing, {"shape": {"kind": "circle", "radius": 3}, "many": {"a": {"side": 2}}})
    assert isinstance(drawing.shape, Circle)
    assert drawing.shape.radius == 3.0
    assert drawing.many["a"] == Square(kind="square", side=2)  # the default kind


def test_a_name_alone_is_a_section() -> None:
    assert parse(Drawing, {"shape": "circle"}).shape == Circle(kind="circle")


def test_what_is_written_reads_back_equal(tmp_path: Path, own: Path) -> None:
    drawing = parse(Drawing, {"shape": {"kind": f"{own}:Triangle", "base": 5}, "many": {"b": "circle"}})
    (tmp_path / "recipe.toml").write_text(dump_toml(drawing))
    assert load(Drawing, tmp_path / "recipe.toml") == drawing
    assert drawing.shape.base == 5.0  # type: ignore[attr-defined]


def test_a_file_is_looked_for_beside_the_recipe(tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    (tmp_path / "recipe.toml").write_text('shape = "shapes.py:Triangle"')
    assert load(Drawing, tmp_path / "recipe.toml").shape.kind == f"{own}:Triangle"


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        ({"shape": {"kind": "circl"}}, "shape: there is no shape 'circl'; did you mean 'circle'?"),
        (
            {"shape": {"kind": "circle", "side": 1}},
            "shape.side: a setting without effect: square reads it, circle does",
        ),
        ({"many": {"a": {"kind": "circle", "side": 1}}}, "many.a.side"),
        ({"shape": {"kind": "circle", "radios": 1}}, "shape.radios: unknown key; did you mean 'radius'?"),
        ({"shape": {"kind": "circle", "radius": "wide"}}, "shape.radius = 'wide'"),
        ({"how": "thick"}, "how = 'thick' has no effect here: it is read only with coef > 0"),
        ({"shape": "nowhere.py:x"}, "there is no file nowhere.py"),
    ],
)
def test_faults_are_named(tables: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(Drawing, tables)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("content", "name", "says"),
    [(OWN, "Triangel", "did you mean 'Triangle'?"), (OWN, "area", "is no shape"),
     (OWN, "Loose", "is no shape: allowed is a class that builds on KindSection, or whose"),
     (OWN, "Outline", "is no shape: it has no area"),
     ("raise RuntimeError('broken')", "x", "cannot be imported: RuntimeError: broken"),
     ("import sys; sys.exit(3)", "x", "cannot be imported: SystemExit: 3"), ("def (", "x", "is not readable Python")],
)  # fmt: skip
def test_faults_of_a_users_file_are_named(tmp_path: Path, content: str, name: str, says: str) -> None:
    (tmp_path / "own.py").write_text(content)
    with pytest.raises(ConfigError, match=says.replace("?", r"\?")):
        parse(Drawing, {"shape": f"{tmp_path}/own.py:{name}"})


class Plan(Section):
    shape: Annotated[Shape, SHAPES]


def test_settings_of_ones_own_build_on_those_of_the_section(own: Path) -> None:
    with pytest.raises(ConfigError, match=r"Triangle is no shape: allowed is a class that builds on Shape, or whose"):
        parse(Plan, {"shape": f"{own}:Triangle"})


def test_a_recipe_extends_others_and_a_section_of_another_kind_replaces_the_one_below(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('coef = 1\n[shape]\nkind = "square"\nside = 4\n')
    (tmp_path / "b.toml").write_text('extends = ["a.toml"]\nhow = "thick"\n[shape]\nname = "y"\n')
    (tmp_path / "c.toml").write_text('extends = ["b.toml"]\n[shape]\nkind = "circle"\n')
    (tmp_path / "d.toml").write_text('shape = "circle"')
    (tmp_path / "e.toml").write_text('extends = ["d.toml"]\n[shape]\nname = "z"\n')
    assert load(Drawing, tmp_path / "b.toml").shape == Square(kind="square", side=4, name="y")
    found = load(Drawing, tmp_path / "c.toml")
    assert (found.shape, found.how) == (Circle(kind="circle"), "thick")
    assert load(Drawing, tmp_path / "e.toml").shape == Circle(kind="circle", name="z")
    assert load(Drawing, tmp_path / "d.toml", {"shape.radius": 2}).shape == Circle(kind="circle", radius=2)


def test_a_circle_of_recipes_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('extends = ["b.toml"]')
    (tmp_path / "b.toml").write_text('extends = ["a.toml"]')
    with pytest.raises(ConfigError, match=r"extends itself: .*a\.toml -> .*b\.toml -> .*a\.toml"):
        load(Drawing, tmp_path / "a.toml")


def test_the_files_of_ones_own_are_those_named_anywhere_and_their_neighbours(tmp_path: Path, own: Path) -> None:
    own.write_text("import helper\nfrom deep import inside\n" + OWN)
    (tmp_path / "helper.py").write_text("import shapes\n")  # a circle
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "__init__.py").write_text("inside = 1\n")
    drawing = parse(Drawing, {"many": {"a": f"{own}:Triangle", "b": "circle"}})
    assert [(item.name, item.path) for item in references(drawing)] == [("many.a.kind", str(own))]
    assert written_in(own) == (own, tmp_path / "helper.py", tmp_path / "deep" / "__init__.py")
    assert references(parse(Drawing, {})) == []
