"""Tar archives, read as a stream: nothing is extracted to the disk."""

import gzip
import tarfile
import zlib
from collections.abc import Container
from pathlib import Path, PurePosixPath

from detrame.errors import Failure

_LARGEST = 256 << 20  # bytes; the largest file we look for, CIFAR-100's train.bin, has 154 million


def files(path: Path, wanted: Container[str]) -> dict[str, bytes]:
    """The content of the wanted files of a ``.tar.gz``, by their name without folders.

    Every member is checked, wanted or not, and the whole file is read, so that gzip's own checksum is too.
    """
    found: dict[str, bytes] = {}
    try:
        with gzip.open(path) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            for member in tar:
                _refuse_unsafe(path, member)
                name = PurePosixPath(member.name).name
                content = tar.extractfile(member)
                if content is not None and name in wanted:
                    found[name] = content.read()
            while stream.read(1 << 20):
                pass
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise Failure(f"{path} is not a whole .tar.gz archive ({error}): fetch it again") from error
    return found


def _refuse_unsafe(path: Path, member: tarfile.TarInfo) -> None:
    # Nothing is written, so none of this could do harm; but an archive that tries is not the one its name says.
    name = PurePosixPath(member.name.replace("\\", "/"))
    if name.is_absolute() or ".." in name.parts:
        raise Failure(f"{path} is refused: {member.name!r} points outside the archive; fetch it again from its source")
    if not (member.isfile() or member.isdir()):
        raise Failure(f"{path} is refused: {member.name!r} is a link or a device; fetch it again from its source")
    if member.size > _LARGEST:
        raise Failure(f"{path} is refused: {member.name!r} is larger than any file of a known data set")
