"""Pages are templates of this folder, filled: one HTML file each that needs nothing else, neither network nor scripts.

Every value is escaped where it enters a page; only the style sheets, which are files of the package, are not.
"""

import base64
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from groupwise import __version__


def render(template: str, *, title: str, styles: tuple[str, ...] = ("style.css",), **values: object) -> str:
    """A page of a template with its values; `styles` are files of the templates' folder."""
    environment = _environment()
    style = "".join(environment.get_template(name).render() for name in styles)
    return environment.get_template(template).render(title=title, style=style, version=__version__, **values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("groupwise.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"svg_uri": _svg_uri, "parted": parted, "minus": minus}
    return environment


def _svg_uri(svg: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"


def parted(text: str) -> tuple[str, str]:
    """The two parts of a text: a number and its interval.

    >>> parted("12.3 % [9.8, 15.4]"), parted("not measured")
    (('12.3 %', '[9.8, 15.4]'), ('not measured', ''))
    """
    value, bracket, interval = text.partition(" [")
    return value, bracket.strip() + interval


def minus(text: str) -> str:
    """Numbers with the minus sign that fonts align with the plus sign."""
    return text.replace("-", "−")
