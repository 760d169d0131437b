"""Downloads that resume, are checked against a published MD5, and appear whole or not at all."""

import errno
import fcntl
import hashlib
import http.client
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from detrame.data.catalogue import Archive
from detrame.errors import Failure

Progress = Callable[[str, int, int | None], None]
"""Called with the file's name, the bytes there are so far, and how many there will be if the server says so."""

_BLOCK = 1 << 18
_TIMEOUT = 30  # seconds without a byte
_RANGE_NOT_SATISFIABLE = 416


def download(archive: Archive, folder: Path, progress: Progress | None = None) -> Path:
    """Fetch `archive` into `folder`, unless it is there already; a download cut short is taken up where it stopped."""
    target = folder / archive.filename
    if target.exists():
        check_md5(target, archive, "remove it and run the same command again")
        return target
    part = target.with_name(target.name + ".part")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _held(part) as file:
            _fetch(archive, file, progress)
            file.flush()
            if (found := _md5(part)) == archive.md5:
                os.replace(part, target)
                return target
            part.unlink()  # what is wrong cannot be resumed
    except (OSError, http.client.HTTPException) as error:
        raise Failure(_why(error, archive, target)) from error
    raise Failure(
        f"what came from {archive.url} is damaged or another file: its MD5 is {found}, "
        f"the published one is {archive.md5}; run the same command again to start over"
    )


def _why(error: Exception, archive: Archive, target: Path) -> str:
    """What stopped a download, and what to do: a full disk is no matter of the network."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"cannot write {target} ({error.strerror}): free some space, then run the same command again to resume"
    otherwise = f"type `{archive.otherwise}`, " if archive.otherwise else ""
    return (
        f"cannot fetch {archive.url} ({error}): run the same command again to resume, {otherwise}"
        f"or fetch it elsewhere and put it at {target}"
    )


def check_md5(path: Path, archive: Archive, remedy: str) -> None:
    """Raise a Failure, with what to do, unless `path` is the published file."""
    try:
        found = _md5(path)
    except OSError as error:
        raise Failure(f"cannot read {path} ({error}): fetch {archive.url}") from error
    if found != archive.md5:
        raise Failure(
            f"{path} is cut, damaged or another file: its MD5 is {found}, that of {archive.filename} "
            f"is {archive.md5}; {remedy}"
        )


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


@contextmanager
def _held(part: Path) -> Iterator[BinaryIO]:
    """The file to append to, which no other process writes meanwhile; it is not left behind empty."""
    with part.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError("another process is fetching it: wait for that one") from None
        try:
            yield file
        finally:
            if not file.seek(0, os.SEEK_END):
                part.unlink(missing_ok=True)


def _fetch(archive: Archive, file: BinaryIO, progress: Progress | None) -> None:
    """Append to `file` what it lacks."""
    done = file.seek(0, os.SEEK_END)
    request = Request(archive.url, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        response = urlopen(request, timeout=_TIMEOUT)
    except HTTPError as error:
        error.close()
        if done and error.code == _RANGE_NOT_SATISFIABLE:  # nothing is left to send: all of it may be here
            return
        raise
    with response:
        if response.status != http.client.PARTIAL_CONTENT:
            done = 0
            file.truncate(0)
        length = response.headers["Content-Length"]
        total = done + int(length) if length else None
        while block := response.read(_BLOCK):
            file.write(block)
            done += len(block)
            if progress:
                progress(archive.filename, done, total)
    if total is not None and done < total:
        raise ConnectionError(f"the connection ended after {done} of {total} bytes")
