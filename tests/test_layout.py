"""The import rule of docs/architecture.md, and the public names."""

import ast
from pathlib import Path
from types import ModuleType

import pytest

import detrame

SOURCE = Path(detrame.__file__).parent

# Lower lines never import higher ones, and parts on one line never import each other.
LAYERS = [
    ["cli"],
    ["experiments"],
    ["estimators"],
    ["training", "robustness"],
    ["inference"],
    ["models", "data", "conversion", "folding", "fusion", "bridge"],
    ["tracing"],
    ["activations", "dictionary"],
    ["functional", "prox"],
    ["kernels"],
    ["operators", "errors", "modes", "channels"],
]
LEVEL = {part: level for level, parts in enumerate(LAYERS) for part in parts}


def part_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """The parts of the package that a file imports, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "detrame":
                found |= {alias.name for alias in node.names}
            elif node.module and node.module.startswith("detrame."):
                found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("detrame.")}
    return found - {"__version__"}


FILES = [path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or not path.stem.startswith("__")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_the_import_rule(path: Path) -> None:
    part = part_of(path)
    assert part in LEVEL, f"{part} has no place in the layout: add it to LAYERS and to docs/architecture.md"
    for other in imports(path) - {part}:
        assert LEVEL[other] > LEVEL[part], f"{path.relative_to(SOURCE)} must not import detrame.{other}"


def test_the_rule_is_the_one_that_is_documented() -> None:
    page = (SOURCE.parents[1] / "docs" / "architecture.md").read_text()
    for parts in LAYERS:
        assert " | ".join(f"`{part}`" for part in parts) in page.replace("\\|", "|")


def test_public_names_resolve() -> None:
    parts = {part_of(path) for path in FILES}
    for name in detrame.__all__:
        # A function named as a module would be shadowed by it, once something imports the module.
        assert name not in parts or isinstance(getattr(detrame, name), ModuleType)
        assert getattr(detrame, name) is not None
        assert name in dir(detrame)
    with pytest.raises(AttributeError, match="no attribute 'qmetric'"):
        _ = detrame.qmetric
