import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from detrame.cli import data as cli
from detrame.data import cache
from detrame.errors import Failure

from .forms import Splits, write_npz
from .test_folder import paint


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def test_list_says_what_is_here(small: Splits, tmp_path: Path) -> None:
    before = run("list").stdout
    assert "cifar10" in before
    assert "type `detrame data get cifar10`" in before
    run("get", "cifar10", "--from", write_npz(tmp_path / "a.npz", small))
    rows = {row["name"]: row for row in json.loads(run("list", "--json").stdout)}
    assert list(rows) == ["digits", "cifar10", "cifar100", "svhn", "svhn_extra"]
    assert [name for name, row in rows.items() if row["ready"]] == ["digits", "cifar10"]
    assert rows["cifar10"]["source"] == "small"


def test_a_damaged_file_does_not_hide_the_others() -> None:
    for name in ("cifar10", "pets"):
        cache.path(name).parent.mkdir(parents=True, exist_ok=True)
        cache.path(name).write_bytes(b"not a data set")
    rows = {row["name"]: row for row in json.loads(run("list", "--json").stdout)}
    assert [name for name, row in rows.items() if row["damage"]] == ["cifar10", "pets"]
    assert rows["digits"]["ready"]
    assert not rows["cifar10"]["ready"]
    text = run("list").stdout
    assert rows["pets"]["damage"] in text
    assert "svhn" in text


def test_get_and_verify(small: Splits, tmp_path: Path) -> None:
    source = write_npz(tmp_path / "a.npz", small)
    got = json.loads(run("get", "cifar10", "--from", source, "--json").stdout)
    assert (got["train"], got["test"], got["classes"], got["image"]) == (10, 6, 10, [3, 32, 32])
    assert got["digest"] in run("get", "cifar10", "--from", source).stdout
    assert [fact["name"] for fact in json.loads(run("verify", "--json").stdout)] == ["digits", "cifar10"]
    assert got["digest"] in run("verify", "cifar10").stdout


def test_verify_checks_what_is_beside_a_damaged_file(small: Splits, tmp_path: Path) -> None:
    run("get", "cifar10", "--from", write_npz(tmp_path / "a.npz", small))
    for name in ("broken", "torn"):
        cache.path(name).write_bytes(b"not a data set")
    for options in ([], ["--json"]):
        result = run("verify", *options)
        assert "digits" in result.stdout
        assert "cifar10" in result.stdout
        assert "broken.safetensors is damaged" in str(result.exception)
        assert "torn.safetensors is damaged" in str(result.exception)


def test_a_folder_of_your_own(tmp_path: Path) -> None:
    for i in range(10):
        paint(tmp_path / "pets" / "ab"[i % 2] / f"{i}.png", (i, 0, 0))
    result = run("get", "pets", "--from", tmp_path / "pets", "--size", 4, "--split-seed", 1, "--json")
    assert json.loads(result.stdout)["image"] == [3, 4, 4]
    assert "pets" in run("list").stdout


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        (["get", "cifar01"], ValueError, "did you mean 'cifar10'"),
        (["get", "flowers"], ValueError, "your own images get a name by `detrame data get NAME --from FOLDER`"),
        (["get", "cifar10", "--size", "3"], ValueError, "--size and --split-seed are for a folder"),
        (["get", "svhn", "--from", "no/such/folder"], ValueError, "does not exist"),
        (["verify", "svhn"], Failure, "type `detrame data get svhn`"),
    ],
)
def test_what_goes_wrong_is_raised_for_the_caller(arguments: list[str], kind: type[Exception], words: str) -> None:
    error = run(*arguments).exception
    assert type(error) is kind
    assert words in str(error)


def test_a_bar_only_on_a_terminal(small: Splits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with cli._progress() as progress:
        assert progress is None
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with cli._progress() as progress:
        assert progress is not None
        progress("a.bin", 1, None)
        progress("a.bin", 2, 2)


def test_help_does_not_import_torch() -> None:
    code = "import sys, detrame.cli.data; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
