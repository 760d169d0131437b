"""Networks by name: a family is a pattern of names, and the numbers in a name are facts about the network."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from detrame.errors import unknown
from detrame.models.blocks import Options


@dataclass(frozen=True)
class Family:
    """Networks named alike: ``build(*numbers, options)`` makes the one whose name holds those numbers."""

    pattern: re.Pattern[str]
    build: Callable[..., nn.Module]
    listed: tuple[str, ...]


_FAMILIES: list[Family] = []


def register(pattern: str, build: Callable[..., nn.Module], listed: tuple[str, ...]) -> None:
    """Add a family: a pattern with one group for each number in its names, a builder, and the names to list."""
    compiled = re.compile(pattern)
    for name in listed:
        if any(family.pattern.fullmatch(name) for family in _FAMILIES):
            raise ValueError(f"a model named {name!r} is registered already")
        if not compiled.fullmatch(name):
            raise ValueError(f"the name {name!r} does not fit the pattern {pattern!r}")
    _FAMILIES.append(Family(compiled, build, listed))


def listed_names() -> list[str]:
    """The names of the paper's networks, in its order."""
    return [name for family in _FAMILIES for name in family.listed]


def build(name: str, options: Options) -> nn.Module:
    """The network called `name`; a ValueError with a suggestion if there is none."""
    for family in _FAMILIES:
        if match := family.pattern.fullmatch(str(name)):
            return family.build(*map(int, match.groups()), options)
    raise unknown("model", name, listed_names())
