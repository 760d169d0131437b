"""Pages from templates: the shell and the style that every page of the project shares."""

from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from detrame.errors import Failure
from detrame.experiments.report.charts import standalone
from detrame.training.files import write_text

CHART = b'<svg xmlns="http://www.w3.org/2000/svg" class="chart" '  # how a chart of ours begins, and a drawing hardly


def render(template: str, **values: object) -> str:
    """A page from a template below ``detrame/experiments``; it holds its style, and needs no other file."""
    return _environment().get_template(template).render(style=chart_style() + _resource("style.css"), **values)


def write_page(out: Path, page: str, figures: Iterable[tuple[str, Markup]]) -> Path:
    """Write a page to `out`, and its figures, by name, as SVG files into the folder ``<stem>_figures`` beside it.

    Charts that a page before left in that folder are removed; files of another kind stay.
    """
    folder = out.with_name(f"{out.stem}_figures")
    written = {folder / f"{name}.svg": svg for name, svg in figures}
    for file, svg in written.items():
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Failure(f"cannot make the folder {folder} ({error.strerror}): choose another --out") from error
        write_text(file, standalone(svg, chart_style()))
    write_text(out, page)
    for file in set(folder.glob("*.svg")) - written.keys():
        if file.read_bytes().startswith(CHART):
            file.unlink()
    return out


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
