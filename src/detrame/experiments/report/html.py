"""Pages from templates: the shell and the style that every page of the project shares."""

from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined


def render(template: str, **values: object) -> str:
    """A page from a template below ``detrame/experiments``; it holds its style, and needs no other file."""
    return _environment().get_template(template).render(style=chart_style() + _resource("style.css"), **values)


def chart_style() -> str:
    """The style of the charts alone, for those that become files of their own."""
    return _resource("chart.css")


def _resource(name: str) -> str:
    return files("detrame.experiments.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("detrame.experiments", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
