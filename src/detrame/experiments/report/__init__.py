"""One self-contained HTML page from finished runs, and its figures as SVG files beside it."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path

from detrame.experiments.report import sections, wording
from detrame.experiments.report.groups import compared
from detrame.experiments.report.html import render, write_page
from detrame.training.files import ready_to_write
from detrame.training.runs import Run

__all__ = ["write"]


def write(runs: Sequence[Run], out: Path) -> Path:
    """Write the report of finished runs to `out`, and its figures into the folder ``<stem>_figures`` beside it.

    Runs that differ in their seeds only are one group; groups on the same data set are compared, ReLU first. The
    page needs no network, no scripts and no other file. A Failure names a run that is not finished.
    """
    ready_to_write(out)
    comparisons = compared(runs)
    reports = [sections.report_on(comparison) for comparison in comparisons]
    page = render(
        "report/page.html.j2",
        reports=reports,
        title=wording.title(comparisons),
        facts=wording.facts(comparisons, date.today()),
        code_images=sections.CODE_IMAGES,
    )
    return write_page(out, page, [figure for report in reports for figure in report.figures])
