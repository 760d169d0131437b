"""Everything the page shows about one data set, gathered."""

from dataclasses import dataclass

from detrame.experiments.report import figures, wording
from detrame.experiments.report.charts import Figure
from detrame.experiments.report.examples import Disagreement, disagreement
from detrame.experiments.report.figures import Layer
from detrame.experiments.report.groups import Comparison, Difference, Group, difference
from detrame.inference import LayerCodes, layer_codes

CODE_IMAGES = 300


@dataclass(frozen=True)
class Report:
    """What the page shows about one comparison.

    Attributes:
        comparison: the groups.
        headline, caveats: in words.
        rows: each group, and its difference to the first one (None for that one itself).
        accuracy, coupling, codes: figures by section.
        coupled: the group whose couplings are shown, if there is any.
        disagreement: images on which two groups differ, where there are two.
        recipe: each field with its value in every group.
        repeats: Python that repeats each group.
    """

    comparison: Comparison
    headline: str
    caveats: list[str]
    rows: list[tuple[Group, Difference | None]]
    accuracy: list[Figure]
    coupling: list[Layer]
    codes: list[Figure]
    coupled: Group | None
    disagreement: Disagreement | None
    recipe: list[tuple[str, list[str]]]
    repeats: list[str]

    @property
    def figures(self) -> list[Figure]:
        """All of them."""
        return [*self.accuracy, *[figure for layer in self.coupling for figure in layer.figures], *self.codes]


def report_on(comparison: Comparison) -> Report:
    """Measure what is to be shown, and draw it."""
    first, *others = comparison.groups
    codes = [_codes(group) for group in comparison.groups]
    iterating = [
        (group, c) for group, c in zip(comparison.groups, codes, strict=True) if any(len(x.residuals) for x in c)
    ]
    coupled = iterating[0][0] if iterating else None
    return Report(
        comparison=comparison,
        headline=wording.headline(comparison),
        caveats=wording.caveats(comparison),
        rows=[(first, None), *[(group, difference(group, first)) for group in others]],
        accuracy=figures.accuracy(comparison),
        coupling=figures.couplings(comparison, *iterating[0]) if iterating else [],
        codes=[
            *([figures.sparsity(comparison, codes)] if any(codes) else []),
            *[figures.residual(comparison, *one) for one in iterating],
        ],
        coupled=coupled,
        disagreement=disagreement(comparison),
        recipe=wording.recipe_rows(comparison),
        repeats=[wording.repeat(group) for group in comparison.groups],
    )


def _codes(group: Group) -> list[LayerCodes]:
    run = group.runs[0]
    return layer_codes(run.model, run.dataset().test.images[:CODE_IMAGES])
