"""The reproduction of the paper as one self-contained page, from the files in results/ alone."""

from pathlib import Path

from detrame.experiments.report.groups import NAMES
from detrame.experiments.report.html import render
from detrame.experiments.reproduction import diagrams, figures, tables, wording
from detrame.experiments.reproduction.claims import judged
from detrame.experiments.reproduction.evidence import Evidence, model_name
from detrame.experiments.robustness.tables import measured_on
from detrame.experiments.spread import plus_minus
from detrame.training.files import ready_to_write, write_text

__all__ = ["build", "page", "write"]


def build(results: Path) -> str:
    """The page, from what is stored below `results`; the same files give the same page."""
    return page(Evidence.read(results))


def page(evidence: Evidence) -> str:
    """The page of some evidence: whatever has not run yet is said to be missing."""
    claims = judged(evidence)
    return render(
        "reproduction/page.html.j2",
        headline=wording.headline(evidence),
        ahead=wording.ahead(evidence),
        tiles=wording.tiles(evidence),
        facts=wording.facts(evidence),
        looks=wording.LOOKS,
        linked=wording.linked,
        names=NAMES,
        model_name=model_name,
        plus_minus=plus_minus,
        claims=claims,
        tally=wording.tally(claims),
        accuracies=tables.accuracies(evidence),
        comparisons=tables.comparisons(evidence),
        against_parameters=figures.against_parameters(evidence),
        training_curves=figures.training_curves(evidence),
        under_attack=figures.under_attack(evidence),
        attacked_on=measured_on(evidence.fooling) if evidence.fooling else "",
        most_parameters=wording.most_parameters(evidence),
        controls=tables.controls(evidence),
        changes=tables.changes(evidence),
        held_out_deviation=tables.held_out_deviation(evidence),
        behind=wording.behind(evidence),
        tried=wording.tried(evidence),
        times=tables.times(evidence),
        training_times=wording.training_times(evidence.timing),
        times_measured_on=wording.times_measured_on(evidence.timing),
        network=diagrams.two_layers(),
        blocks=[diagrams.plainnet_block(), diagrams.resnet_block()],
    )


def write(results: Path, out: Path) -> Path:
    """Write the page of the results below `results` to `out`."""
    ready_to_write(out)
    write_text(out, build(results))
    return out
