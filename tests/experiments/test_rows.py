"""What the rows of all tables share, for whoever reads more than one of them as JSON."""

from dataclasses import fields
from typing import Any

import pytest

from detrame.experiments import accuracy, changes, controls, ddl, depth, parameters, timing
from detrame.experiments.robustness import tables

ORDER = ["model", "dataset", "activation", "iterations", "mean", "std", "n", "epochs", "parameters", "hardware"]


@pytest.mark.parametrize(
    "row", [table.Row for table in (accuracy, changes, controls, ddl, depth, parameters, tables, timing)]
)
def test_every_table_has_what_it_shares_in_one_order(row: Any) -> None:
    names = [field.name for field in fields(row)]
    assert [name for name in names if name in ORDER] == [name for name in ORDER if name in names]
    assert {"model", "activation"} < set(names)
