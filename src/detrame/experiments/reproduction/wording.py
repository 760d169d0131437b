"""What the page says in words about all results together."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

from detrame.experiments.changes import ON_HELD_OUT
from detrame.experiments.report.groups import NAMES
from detrame.experiments.report.svg import signed
from detrame.experiments.reproduction.evidence import DATASETS, Evidence, model_name
from detrame.experiments.reproduction.tables import moved
from detrame.experiments.reproduction.verdicts import Claim, Count, Verdict
from detrame.experiments.timing import Row as TimeRow
from detrame.training.environment import short_commit, sittings

# The verdicts with their colour and their sign, so that they are told apart by more than words.
LOOKS = {
    "reproduced": ("s2", "✓"),
    "better": ("s0", "▲"),
    "not reproduced": ("s5", "✗"),
    "not judged": ("s4", "◇"),
    "not run": ("s4", "○"),
    Verdict.HOLDS: ("s2", "✓"),
    Verdict.PARTLY: ("s3", "◐"),
    Verdict.CHANCE: ("s4", "≈"),
    Verdict.FAILS: ("s5", "✗"),
    Verdict.UNTESTED: ("s4", "○"),
}


def headline(evidence: Evidence) -> str:
    """How much of the accuracy table has run, and what came of it."""
    verdicts = Counter(row.verdict for row in evidence.rows.values() if row.n)
    if not verdicts:
        return f"None of the paper's {len(evidence.rows)} accuracies has been run yet."
    told = _joined([f"{count} {verdict}" for verdict in LOOKS if (count := verdicts[verdict])])
    return f"{verdicts.total()} of the paper's {len(evidence.rows)} accuracies run again: {told}."


def tiles(evidence: Evidence) -> dict[str, int]:
    """How many cells of the accuracy table have each verdict."""
    counts = Counter(row.verdict for row in evidence.rows.values())
    return {verdict: counts[verdict] for verdict in LOOKS if counts[verdict]}


def ahead(evidence: Evidence) -> str:
    """Which activation is ahead, over all pairs that have run."""
    cells = dict.fromkeys((model, dataset) for model, dataset, _ in evidence.rows)
    gains = [pair.ours for cell in cells if (pair := evidence.pair(*cell))]
    if not gains:
        return "No network has run with both activations yet."
    better = sum(gain.mean > 0 for gain in gains)
    clear = Count.of(gains)
    said = f"Q-Metric is ahead of ReLU in {better} of {len(gains)} networks run with both, "
    said += f"in {clear.yes} by more than two standard errors (computed as for the claims below)."
    return f"{said} In {clear.no} it is behind by as much." if clear.no else said


def tally(claims: list[Claim]) -> str:
    """How the paper's claims in words fare, by finding; those that runs may still change are counted apart."""
    verdicts: Counter[tuple[Verdict, bool]] = Counter()
    for finding in (finding for claim in claims for finding in claim.findings):
        verdicts[finding.found[1:]] += len(finding.where.split(", "))
    cases = [(verdict, so_far) for verdict in Verdict for so_far in (False, True)]
    return ", ".join(f"{case[0]}{' so far' * case[1]}: {count}" for case in cases if (count := verdicts[case]))


def behind(evidence: Evidence) -> str:
    """The Q-Metric networks that are not reproduced, by data set; nothing if there are none."""
    return _by_dataset(_behind(evidence))


def _behind(evidence: Evidence) -> list[tuple[str, str]]:
    return [
        (model, dataset)
        for (model, dataset, activation), row in evidence.rows.items()
        if activation == "qmetric" and row.verdict == "not reproduced"
    ]


def _by_dataset(cells: Iterable[tuple[str, str]]) -> str:
    found: dict[str, list[str]] = {}
    for model, dataset in cells:
        found.setdefault(dataset, []).append(model_name(model))
    return "; ".join(f"{_joined(found[dataset])} on {name}" for dataset, name in DATASETS.items() if dataset in found)


def tried(evidence: Evidence) -> str:
    """What the changes came to, and what is still to be tried; nothing before anything is."""
    if not evidence.changes:
        return ""
    beyond = [
        f"{row.change.replace('-', ' ')} moved {model_name(row.model)} with {NAMES[row.activation]} by "
        f"{signed(gain.mean)} points"
        for row, gain in moved(evidence)
    ]
    said = f"Beyond chance (two standard errors of counting), {_joined(beyond) or 'no change moved a score'}."
    if all(row.scored_on == ON_HELD_OUT for row in evidence.changes):
        said += " No change has been trained at full length yet."
    touched = {(row.model, row.dataset) for row in evidence.changes}
    untouched = _by_dataset(cell for cell in _behind(evidence) if cell not in touched)
    return f"{said} Nothing has been tried yet with {untouched}." if untouched else said


def most_parameters(evidence: Evidence) -> str:
    """How many times the parameters of its ReLU twin a Q-Metric network has at most."""
    counts = evidence.parameters
    return f"{max(counts[m, d, 'qmetric'] / counts[m, d, 'relu'] for m, d, _ in counts):.1f}"


def times_measured_on(rows: Sequence[TimeRow]) -> str:
    """On which hardware our times were measured, at which commits; nothing before one is."""
    measured = [row for row in rows if row.step_ms is not None]
    hardware, commits = (list(dict.fromkeys(getattr(row, name) for row in measured)) for name in ("hardware", "commit"))
    return f"{_joined(hardware)} at commit{'s' * (len(commits) > 1)} {_joined(commits)}" if measured else ""


def training_times(rows: Sequence[TimeRow]) -> str:
    """What our training times are, by the rows of the time table; nothing before one is measured."""
    networks: dict[str, list[str]] = {}
    for row in rows:
        if row.train_basis:
            networks.setdefault(row.train_basis, []).append(f"{model_name(row.model)} with {NAMES[row.activation]}")
    if not networks:
        return ""
    *others, most = sorted(networks, key=lambda basis: len(networks[basis]))
    if not others:
        return f"Each of our training times is {most}."
    said = [f"{basis} for {_joined(networks[basis])}" for basis in others]
    return f"Our training time is {'; '.join(said)}; {most} for the rest."


def facts(evidence: Evidence) -> list[tuple[str, str]]:
    """Where the figures come from: they are worth nothing without it."""
    runs = [result for cell in evidence.rows for result in evidence.runs(*cell)]
    seeds = sorted({run.recipe.seed for run in runs})
    places = [place for run in runs for place in sittings(run.environment)]
    return [
        ("Paper", "Deep Transform and Metric Learning Network (Tang, Chouzenoux, Pesquet, Krim)"),
        ("Runs", f"{len(runs)} of full length, seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds)) or 'none'}"),
        ("Data", "; ".join(dict.fromkeys(run.environment["data"]["source"] for run in runs)) or "none"),
        ("Hardware", _distinct([place["hardware"] for place in places])),
        ("PyTorch", _distinct([place["torch"] for place in places])),
        ("Commit", _distinct([short_commit(place["commit"]) for place in places])),
    ]


def linked(text: str) -> Markup:
    """A text in which what it names of the repository is a link, from the folder docs/ where the page stands."""
    return Markup(re.sub(r"docs/\w+\.md|results/", r'<a href="../\g<0>">\g<0></a>', str(escape(text))))


def _joined(names: Sequence[str]) -> str:
    """Names in a sentence."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def _distinct(values: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(values)) or "none"
