"""Measurements as small JSON files below ``results/robustness``, perturbations as safetensors beside them."""

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from detrame.experiments.results import reading, write_document
from detrame.experiments.robustness.measure import Changed, Figure, Measured, Settings
from detrame.robustness.trust import Check
from detrame.training.files import read_tensors, write_tensors


def store(measured: Measured, folder: Path) -> Path:
    """Write a measurement below `folder`, and return the file."""
    path = path_of(folder, measured.attack, measured.dataset, measured.model, measured.activation)
    path.parent.mkdir(parents=True, exist_ok=True)
    if measured.perturbations is not None:
        tensors = {"perturbations": measured.perturbations.half()}
        write_tensors(path.with_suffix(".safetensors"), tensors, {})
    return write_document(path, document(measured))


def document(measured: Measured) -> dict[str, Any]:
    """A measurement as a JSON object, without its perturbations."""
    plain = {f.name: getattr(measured, f.name) for f in fields(measured) if f.name != "perturbations"}
    figures = [
        {key: value for key, value in asdict(figure).items() if value is not None} for figure in plain["figures"]
    ]
    return plain | {
        "figures": figures,
        "settings": asdict(measured.settings),
        "changed": [*map(list, plain["changed"])],
        "checks": [check._asdict() for check in plain["checks"]],
    }


def path_of(folder: Path, attack: str, dataset: str, model: str, activation: str) -> Path:
    """Where the measurement of a network under an attack is stored."""
    return folder / "robustness" / attack / dataset / f"{model}-{activation}.json"


def read(path: Path) -> Measured:
    """A stored measurement, its perturbations included where they are beside it."""
    with reading(path, "a measurement"):
        found = json.loads(path.read_text())
        how = found["settings"]
        settings = how | {"seeds": tuple(how["seeds"]), "precision": how["precision"]}  # each has to be there
        parts = {
            "figures": [Figure(**figure) for figure in found["figures"]],
            "settings": Settings(**settings),
            "changed": [Changed(*one) for one in found["changed"]],
            "checks": [Check(**check) for check in found.get("checks", [])],  # the first files have none
        }
        places = len(found["figures"]) // len(how["seeds"])
        return Measured(**(found | parts), perturbations=_perturbations(path.with_suffix(".safetensors"), places))


def stored(folder: Path, attack: str) -> list[Measured]:
    """Every stored measurement by an attack, by data set and network, ReLU before Q-Metric."""
    found = [read(path) for path in (folder / "robustness" / attack).rglob("*.json")]
    return sorted(found, key=lambda one: (one.dataset, one.model, one.activation != "relu"))


def _perturbations(path: Path, places: int) -> Tensor | None:
    """One for each radius, if they are there: a kill between the two files leaves more, or too few."""
    if not path.exists():
        return None
    tensors, _ = read_tensors(path, remedy="delete it, or restore it from the repository")
    found = tensors["perturbations"].to(torch.float32)
    return found[:places] if len(found) >= places else None
