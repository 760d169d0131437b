"""Files that are whole or not there: written under a temporary name, then renamed."""

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from errno import ENOSPC
from pathlib import Path
from tempfile import TemporaryFile

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from detrame.errors import Failure, check_utf8


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, and put it in place once it is on the disk."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")  # of this process: another may write it too
    try:
        temporary.touch()
        mode = temporary.stat().st_mode  # which safetensors would make the owner's alone
        write(temporary)
        temporary.chmod(mode)
        _wait_for_disk(temporary)
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        with suppress(OSError):  # where nothing could be written, there is nothing to remove
            temporary.unlink()


def _sync_folder(folder: Path) -> None:
    """See that a new name in it is on the disk too, so that files written one after another are found so."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # not every file system can
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def append_text(path: Path, text: str) -> None:
    """Add text to the end of a file in UTF-8; `sync` then waits until it is on the disk."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise _cannot_write(path, error) from error


def sync(path: Path) -> None:
    """Wait until a file is on the disk, so that what is written later is not there before it."""
    try:
        _wait_for_disk(path)
    except OSError as error:
        raise _cannot_write(path, error) from error


def _wait_for_disk(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def ready_to_write(path: Path) -> None:
    """Make the folder of a file that long work will write, and see that it takes files: if not, a Failure now."""
    if path.is_dir():
        raise Failure(f"{path} is a folder: name the file to write in it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise _cannot_write(path, error) from error


def _cannot_write(path: Path, error: OSError) -> Failure:
    full = os.strerror(ENOSPC) in str(error)  # safetensors gives the system's words, without its number
    hint = "free some space" if full else "choose another place"
    return Failure(f"cannot write {path} ({error.strerror or error}): {hint}")


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8, whole or not at all; what of a file's name is not UTF-8 becomes a question mark."""
    write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8", errors="replace"))


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write tensors as safetensors, whole or not at all."""

    def save(temporary: Path) -> None:
        try:
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, temporary, metadata=metadata)
        except SafetensorError as error:  # it wraps the system's error
            raise OSError(str(error)) from error

    write_whole(path, save)


def sha256(path: Path) -> str:
    """The digest of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read_tensors(path: Path, *, remedy: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a safetensors file; a Failure that names the file and the remedy if it is damaged."""
    check_utf8(path, "rename its folder")
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise Failure(f"{path} cannot be read ({error}): {remedy}") from error
