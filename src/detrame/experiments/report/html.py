"""Pages from templates: the shell and the style that every page of the project shares."""

import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from detrame.errors import Failure
from detrame.experiments.report.charts import Figure
from detrame.experiments.report.svg import signed
from detrame.training.files import write_text

CHART = b'<svg xmlns="http://www.w3.org/2000/svg" class="chart" '  # how a chart of ours begins, and a drawing hardly
MARGIN = 14  # around a chart that stands alone


def render(template: str, **values: object) -> str:
    """A page from a template below ``detrame/experiments``; it holds its style, and needs no other file."""
    return _environment().get_template(template).render(style=_resource("chart.css") + _resource("style.css"), **values)


def write_page(out: Path, page: str, figures: Iterable[Figure]) -> Path:
    """Write a page to `out`, and its figures by name, as SVG files into the folder ``<stem>_figures`` beside it.

    Charts that a page before left in that folder are removed; files of another kind stay.
    """
    folder = out.with_name(f"{out.stem}_figures")
    written = {folder / f"{figure.name}.svg": figure.svg for figure in figures}
    for file, svg in written.items():
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Failure(f"cannot make the folder {folder} ({error.strerror}): choose another --out") from error
        write_text(file, standalone(svg))
    write_text(out, page)
    for file in set(folder.glob("*.svg")) - written.keys():
        if file.read_bytes().startswith(CHART):
            file.unlink()
    return out


def standalone(svg: Markup) -> str:
    """A chart as an SVG file of its own: with its style, and on paper of its own."""
    head, body = str(svg).split(">", 1)
    width, height = (float(side) + 2 * MARGIN for side in head.split('viewBox="0 0 ')[1].split('"')[0].split())
    head = re.sub('viewBox="[^"]*"', f'viewBox="{-MARGIN} {-MARGIN} {width:g} {height:g}"', head)
    paper = f'<rect class="paper" x="{-MARGIN}" y="{-MARGIN}" width="{width:g}" height="{height:g}"/>'
    style = _resource("chart.css")
    return f"{head}><style>{style}</style>{paper}{body}\n"


def _resource(name: str) -> str:
    return files("detrame.experiments.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("detrame.experiments", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["signed"] = signed
    return environment
