"""`detrame reproduce TABLE`: the paper's tables, the published figure beside ours. One file a table."""

import typer
from typer.core import TyperGroup

from detrame.cli.reproduce import accuracy, changes, controls, ddl, depth, page, parameters, robustness, timing
from detrame.errors import unknown


class _Tables(TyperGroup):
    """The tables as subcommands; an unknown one is met with a suggestion."""

    def resolve_command(self, ctx: typer.Context, args: list[str]):  # type: ignore[no-untyped-def,override]
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            raise unknown("table", args[0], self.commands)
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_Tables,
    rich_markup_mode=None,
    help="The paper's tables: run what is missing, show the rest.",
)
TABLES = (
    accuracy.accuracy,
    parameters.parameters,
    timing.timing,
    controls.controls,
    changes.changes,
    ddl.ddl,
    depth.depth,
    robustness.uap,
    robustness.noise,
    robustness.attacks,
    page.page,
)
for table in TABLES:
    app.command()(table)
