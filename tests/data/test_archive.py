import gzip
import tarfile
from pathlib import Path

import pytest

from detrame.data.readers import archive
from detrame.errors import Failure

from .forms import flipped, gzipped, write_tar


@pytest.fixture
def tar(tmp_path: Path) -> Path:
    return write_tar(tmp_path / "a.tar.gz", {"folder/a.bin": b"a" * 5000, "b.bin": bytes(range(256)) * 40})


def odd(name: str, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = kind
    member.linkname = "/etc/passwd"
    return member


def test_wanted_files_are_read_by_name(tar: Path) -> None:
    assert archive.files(tar, {"a.bin", "c.bin"}) == {"a.bin": b"a" * 5000}


def test_nothing_is_written(tar: Path) -> None:
    before = sorted(tar.parent.rglob("*"))
    archive.files(tar, {"a.bin", "b.bin"})
    assert sorted(tar.parent.rglob("*")) == before


@pytest.mark.parametrize("name", ["../a.bin", "folder/../../a.bin", "/etc/a.bin", "..\\a.bin", "\\a.bin"])
def test_names_that_point_outside_are_refused(tmp_path: Path, name: str) -> None:
    path = write_tar(tmp_path / "bad.tar.gz", {"a.bin": b"a"}, odd(name))
    with pytest.raises(Failure, match=r"bad.tar.gz is refused: .* points outside the archive"):
        archive.files(path, {"a.bin"})


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path: Path, kind: bytes) -> None:
    path = write_tar(tmp_path / "bad.tar.gz", {}, odd("a.bin", kind))
    with pytest.raises(Failure, match=r"'a.bin' is a link or a device"):
        archive.files(path, {"a.bin"})


def test_folders_are_passed_over(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar.gz", {"d/a.bin": b"a"}, odd("d", tarfile.DIRTYPE))
    assert archive.files(path, {"a.bin", "d"}) == {"a.bin": b"a"}


def test_an_enormous_member_is_refused(tar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "_LARGEST", 6000)
    with pytest.raises(Failure, match=r"'b.bin' is larger than any file"):
        archive.files(tar, {"a.bin"})


def test_every_cut_is_noticed(tar: Path) -> None:
    whole = tar.read_bytes()
    for length in range(0, len(whole), 7):
        tar.write_bytes(whole[:length])
        with pytest.raises(Failure, match=r"a.tar.gz is not a whole .tar.gz archive"):
            archive.files(tar, {"a.bin", "b.bin"})


def test_every_flipped_byte_of_the_stream_is_noticed(tar: Path) -> None:
    length = tar.stat().st_size
    header = 10 + len("a.tar") + 1  # gzip keeps a date and a name there, which no checksum covers
    for position in range(header, length, 3):
        flipped(tar, position)
        with pytest.raises(Failure, match=r"a.tar.gz is (not a whole|refused)"):
            archive.files(tar, {"a.bin", "b.bin"})
        flipped(tar, position)


def test_what_follows_the_end_is_read_for_its_checksum(tar: Path) -> None:
    gzipped(tar, gzip.decompress(tar.read_bytes()) + bytes(3 << 20))
    assert archive.files(tar, {"a.bin"}) == {"a.bin": b"a" * 5000}
    flipped(tar, -5)
    with pytest.raises(Failure, match="CRC check failed"):
        archive.files(tar, {"a.bin"})


@pytest.mark.parametrize("content", [b"", b"not a tar", b"x" * 2000])
def test_what_is_no_tar_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = gzipped(tmp_path / "wrong.tar.gz", content)
    with pytest.raises(Failure, match="not a whole") as caught:
        archive.files(path, {"a.bin"})
    assert "\n" not in str(caught.value)
