"""Where measurements are kept: ``results/timing/HARDWARE/batchN/WHAT/MODEL.json``, the plots of the steps beside.

A device and a size of batch have a folder of their own, so that a small case never takes the place of a large one.
"""

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detrame.experiments import paper
from detrame.experiments.bench import plots
from detrame.experiments.bench.ceilings import Ceilings
from detrame.experiments.bench.steps import StepFigures, Steps
from detrame.experiments.results import check_environment, check_figures, reading, write_document

if TYPE_CHECKING:
    from detrame.experiments.bench import Measured


def folder(results: Path, hardware: str, batch: int) -> Path:
    """Where the figures of a device at a size of batch are kept."""
    return results / "timing" / re.sub(r"[^a-z0-9]+", "-", hardware.lower()).strip("-") / f"batch{batch}"


def folders(results: Path) -> list[Path]:
    """Every such folder."""
    return sorted((results / "timing").glob("*/batch*"))


def write(what: str, measured: "Measured", into: Path) -> None:
    """Store a measurement, and draw the steps anew if it is one of them."""
    write_document(into / what / f"{measured.model}.json", asdict(measured))
    if isinstance(measured, Steps):
        plots.write(read_steps(into), into)


def read_steps(kept: Path) -> list[Steps]:
    """The stored steps of a folder, in the order of the paper's table."""
    order = list(paper.tables()["time"])
    found = [_steps(path) for path in (kept / "steps").glob("*.json")]
    return sorted(found, key=lambda steps: order.index(steps.model))


def _steps(path: Path) -> Steps:
    with reading(path, "a measurement"):
        document = json.loads(path.read_text())
        if paper.timed([path.stem]) != [document["model"]]:
            raise ValueError(f"it is of {document['model']!r}")
        check_environment(document["environment"], "hardware", "device", "commit")
        check_figures({name: document[name] for name in ("batch", "ratio", "operations_ratio")})
        relu, qmetric = (_figures(dict(document[name])) for name in paper.COMPARED)
        nested = {"relu": relu, "qmetric": qmetric, "ceilings": Ceilings(**document["ceilings"])}
        return Steps(**(document | nested))


def _figures(document: dict[str, Any]) -> StepFigures:
    check_figures({name: figure for name, figure in document.items() if (name, figure) != ("peak_mib", None)})
    return StepFigures(**document)
