"""`detrame train`, `compare`, `evaluate` and `report`: runs and what comes of them."""

import json
import math
import os
import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from detrame.cli.arguments import AsJson, Device, folder, numbers, once
from detrame.cli.show import epochs_shown, print_document, print_summaries
from detrame.errors import unknown

if TYPE_CHECKING:  # torch is imported where it is used, so that --help starts at once
    from detrame.training import Recipe, Run

Dataset = Annotated[str | None, typer.Option(help="A data set of `detrame data list`. [default: digits]")]
Iterations = Annotated[
    int | None, typer.Option(help="Iterations of each Q-Metric ReLU. [default: as in the paper's table, else 2]")
]
Seeds = Annotated[str | None, typer.Option(metavar="0,1,...", help="One run per seed. [default: the recipe's, or 0]")]
Epochs = Annotated[int | None, typer.Option(help="Number of epochs; milestones scale with it. [default: the recipe's]")]
Out = Annotated[
    Path | None,
    typer.Option(parser=folder, metavar="FOLDER", help="The folder to create. [default: a free name in runs/]"),
]
RecipeName = Annotated[
    str | None,
    typer.Option(metavar="cifar|svhn|small|FILE", help="The recipe to start from. [default: the data set's]"),
]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Change a field of the recipe, such as lr=0.05 or lr_milestones=[60,120]; --print-recipe shows all.",
    ),
]
MANY = 10_000  # images an epoch, for a CPU
TensorBoard = Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard events into the run.")]


def train(
    model: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="A network of `detrame models`, or ddl3, ddl6, ddl9, ddl12.")
    ] = None,
    dataset: Dataset = None,
    activation: Annotated[str | None, typer.Option(help="relu, qmetric, lista or slstm. [default: qmetric]")] = None,
    iterations: Iterations = None,
    seeds: Seeds = None,
    epochs: Epochs = None,
    out: Out = None,
    recipe: RecipeName = None,
    changes: Changes = None,
    device: Device = "auto",
    checkpoint_every: Annotated[int, typer.Option(min=1, help="Number of epochs between checkpoints.")] = 1,
    tensorboard: TensorBoard = False,
    print_recipe: Annotated[bool, typer.Option("--print-recipe", help="Print the recipe and train nothing.")] = False,
    resume: Annotated[
        Path | None, typer.Option(parser=folder, metavar="RUN", help="Continue a run, or all runs below a folder.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train a network.

    Examples:

        detrame train plainnet3 --dataset digits --seeds 0,1,2

        detrame train plainnet9 --dataset cifar10 --out runs/plainnet9

        detrame train --resume runs/plainnet9

        detrame train resnet20 --dataset cifar100 --set lr=0.05 --print-recipe > my.json
    """
    from detrame.experiments import plans
    from detrame.training import find, resume_all

    options = {"dataset": dataset, "activation": activation, "iterations": iterations, "epochs": epochs}
    if resume is not None:
        decided = [model, *options.values(), seeds, out, recipe, changes]
        if any(value is not None for value in decided) or print_recipe or device != "auto":
            raise ValueError(
                "--resume continues runs with their own recipes, on the device they began on: "
                "leave out the model, --device and everything about the recipe"
            )
        runs = find(resume)
        total = sum(run.recipe.epochs - len(run.history) for run in runs if not run.finished)
        with epochs_shown(total, quiet=as_json, tensorboard=tensorboard) as on_epoch:
            paths = [run.path for run in runs]
            runs = resume_all(paths, checkpoint_every=checkpoint_every, on_epoch=on_epoch)
        _finish(runs, as_json)
        return
    if seeds is not None and "seed" in _parsed(changes):
        raise ValueError("the seed is given twice: by --seeds, and by --set")
    start = _recipe(recipe, changes, model=model, **options)
    if iterations is not None and not start.iterates:
        raise ValueError(f"{start.activation} does not iterate: leave --iterations out")
    recipes = plans.seeded(start, numbers("--seeds", seeds)) if seeds is not None else [start]
    if print_recipe:
        print(recipes[0].to_json(), end="")
        return
    place = out or plans.free_folder(Path("runs") / f"{start.model}-{start.dataset}-{start.activation}")
    _tell_of_the_cpu(start, device, quiet=as_json)
    with epochs_shown(len(recipes) * start.epochs, quiet=as_json, tensorboard=tensorboard) as on_epoch:
        runs = plans.train_all(recipes, place, device=device, checkpoint_every=checkpoint_every, on_epoch=on_epoch)
    _finish(runs, as_json)


def compare(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help="A network. [default: plainnet3]")] = None,
    dataset: Dataset = None,
    iterations: Iterations = None,
    seeds: Annotated[str, typer.Option(metavar="0,1,...", help="Two runs per seed, ReLU and Q-Metric.")] = "0,1,2,3,4",
    epochs: Epochs = None,
    out: Out = None,
    recipe: RecipeName = None,
    changes: Changes = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Train ReLU and Q-Metric side by side, and write a page.

    Examples:

        detrame compare

        detrame compare resnet8 --dataset cifar10 --seeds 0 --epochs 20
    """
    from detrame.experiments import plans, report

    if refused := {"activation", "seed", "split_seed"} & set(_parsed(changes)):
        raise ValueError(f"compare decides the {min(refused)} itself: take it out of --set")
    named = model if model or recipe_file(recipe) else "plainnet3"
    start = _recipe(recipe, changes, model=named, dataset=dataset, iterations=iterations, epochs=epochs)
    if start.activation == "dictionary":
        raise ValueError(f"{start.model} has no activation to compare: `detrame reproduce ddl` compares it with others")
    place = out or plans.free_folder(Path("runs") / f"compare-{start.model}-{start.dataset}")
    chosen = numbers("--seeds", seeds)
    _tell_of_the_cpu(start, device, quiet=as_json)
    with epochs_shown(2 * len(chosen) * start.epochs, quiet=as_json) as on_epoch:
        runs = plans.compare(start, chosen, place, device=device, on_epoch=on_epoch)
    page = report.write(runs, place / "report.html")
    _finish(runs, as_json, page=page)


def evaluate(
    names: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Finished runs, folders of them, or networks of the package."),
    ],
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Score trained networks on their test images again.

    The scores recorded in training are printed beside the new ones.

    Examples:

        detrame evaluate runs/plainnet9

        detrame evaluate plainnet9:relu plainnet9:qmetric
    """
    from detrame.experiments.networks import PACKAGE, named
    from detrame.inference import accuracy, predict
    from detrame.training import pick_device

    place = pick_device(device)
    rows = []
    for asked, network in [(name, network) for name in names for network in named(name)]:
        model, test = network.model.to(place), network.dataset.test.to(place)
        run = asked if network.source == PACKAGE else network.source
        if not as_json:
            print(f"{run} ...", file=sys.stderr, flush=True)  # 10,000 images of CIFAR-10 take a CPU minutes
        measured = accuracy(predict(model, test.images), test.labels)
        rows.append({"run": run, "accuracy": measured, "recorded": network.recorded, "images": len(test)})
        if not as_json:
            print(f"{run}: {measured:.2f}% of {len(test)} test images (recorded: {network.recorded:.2f}%)")
    if as_json:
        print_document(rows)


def report(
    paths: Annotated[list[Path], typer.Argument(metavar="RUNS...", help="Finished runs, or folders of them.")],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
) -> None:
    """Write one HTML page that shows and compares runs.

    Example: detrame report runs/plainnet3-digits-relu runs/plainnet3-digits-qmetric --out page.html
    """
    from detrame.experiments import report as page
    from detrame.training import find

    print(page.write([run for path in paths for run in find(path)], out))


def recipe_file(recipe: str | None) -> Path | None:
    """The file that --recipe names, if it names one rather than a recipe of ours."""
    from detrame.experiments import RECIPES

    if recipe is None or recipe in RECIPES:
        return None
    if not Path(recipe).is_file():
        if "/" not in recipe and not recipe.endswith(".json"):
            raise unknown("recipe", recipe, RECIPES)
        raise ValueError(f"there is no recipe at {recipe}: make one with --print-recipe")
    return Path(recipe)


def _recipe(recipe: str | None, changes: list[str] | None, **options: Any) -> "Recipe":
    """The recipe that the options of `train` and `compare` describe; what is not given is None."""
    from detrame.experiments import default_recipe
    from detrame.training import Recipe

    given = {name: value for name, value in options.items() if value is not None}
    for name, value in _parsed(changes).items():
        if name in given:
            raise ValueError(f"{name} is given twice: {given[name]!r}, and {value!r} by --set")
        given[name] = value
    if file := recipe_file(recipe):
        return Recipe.read(file).replace(**given)
    if "model" not in given:
        raise ValueError("which network? name one of `detrame models`, or give --resume RUN")
    return default_recipe(given.pop("model"), given.pop("dataset", "digits"), recipe=recipe, **given)


def _parsed(changes: list[str] | None) -> dict[str, Any]:
    """`field=value` pairs, the values as JSON where they are JSON (0.05, true, [1, 2]), as text elsewhere."""
    from detrame.training import Recipe

    fields: dict[str, Any] = {}
    for change in changes or []:
        name, equals, value = change.partition("=")
        if not equals:
            raise ValueError(f"--set takes FIELD=VALUE, got {change!r}")
        once("--set", [*fields, name])
        try:
            fields[name] = json.loads(value)
        except ValueError:
            fields[name] = value
    return Recipe.checked(fields)


def _tell_of_the_cpu(recipe: "Recipe", device: str, *, quiet: bool) -> None:
    """Say on stderr, before hours pass in silence, that so many images want a GPU."""
    from detrame.data import CATALOGUE, load
    from detrame.training import pick_device

    images = CATALOGUE[recipe.dataset].counts[0] if recipe.dataset in CATALOGUE else 0
    if quiet or images <= MANY or pick_device(device) != "cpu":
        return
    load(recipe.dataset)  # which says so if it is not there
    steps = recipe.epochs * math.ceil(images / recipe.batch_size)
    print(f"on the CPU: {steps:,} steps, of which each may take seconds; a GPU takes milliseconds", file=sys.stderr)


def _finish(runs: "list[Run]", as_json: bool, page: Path | None = None) -> None:
    from detrame.experiments import summarise

    summaries = summarise(runs)
    if as_json:
        document = {
            "summary": [vars(summary) for summary in summaries],
            "runs": [{"run": str(run.path), "seed": run.recipe.seed, **vars(run.scores)} for run in runs],
        }
        print_document(document | ({"report": str(page)} if page else {}))
        return
    print_summaries(summaries)
    print(page if page else "\n".join(str(run.path) for run in runs))
    if page is None and len(runs) > 1:
        folder = os.path.commonpath([run.path for run in runs]) or "."
        print(f"for a page that compares them: detrame report {quote(folder)}")
