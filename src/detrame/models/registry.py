"""Networks by name: a family is a pattern of names, and the numbers in a name are facts about the network."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from detrame.errors import unknown
from detrame.models.blocks import Options


@dataclass(frozen=True)
class Family:
    """Networks named alike: ``build(*numbers, options)`` makes the one whose name holds those numbers.

    A family of `dictionary` networks takes no activation: codes are not activated further.
    """

    pattern: re.Pattern[str]
    build: Callable[..., nn.Module]
    listed: tuple[str, ...]
    dictionary: bool


DIGITS = 4  # of a number in a name: more layers than any network has
_FAMILIES: list[Family] = []


def register(
    pattern: str, build: Callable[..., nn.Module], listed: tuple[str, ...], *, dictionary: bool = False
) -> None:
    """Add a family: a pattern with one group for each number in its names, a builder, and the names to list."""
    compiled = re.compile(pattern)
    for name in listed:
        if any(family.pattern.fullmatch(name) for family in _FAMILIES):
            raise ValueError(f"a model named {name!r} is registered already")
        if not compiled.fullmatch(name):
            raise ValueError(f"the name {name!r} does not fit the pattern {pattern!r}")
    _FAMILIES.append(Family(compiled, build, listed, dictionary))


def listed_names(*, dictionary: bool = False) -> list[str]:
    """The names of the paper's networks, in its order: those that take an activation, or the dictionary networks."""
    return [name for family in _FAMILIES if family.dictionary == dictionary for name in family.listed]


def check_name(name: str) -> None:
    """A ValueError with a suggestion, unless there is a network called `name`."""
    _find(name)


def is_dictionary_network(name: str) -> bool:
    """Whether the network called `name` takes no activation, since its layers give codes."""
    return _find(name)[0].dictionary


def build(name: str, options: Options) -> nn.Module:
    """The network called `name`; a ValueError with a suggestion if there is none."""
    family, numbers = _find(name)
    return family.build(*numbers, options)


def _find(name: str) -> tuple[Family, list[int]]:
    for family in _FAMILIES:
        if match := family.pattern.fullmatch(str(name)):
            if any(len(number) > DIGITS for number in match.groups()):
                raise ValueError(f"{name} cannot be built: the numbers in a name have at most {DIGITS} digits")
            return family, [int(number) for number in match.groups()]
    raise unknown("model", name, [*listed_names(), *listed_names(dictionary=True)])
