import ctypes
import os
import re
import runpy
import subprocess
import sys
import time

import pytest

import detrame
from detrame import cli
from detrame.errors import Failure


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([]) == 0
    assert "models" in capsys.readouterr().out
    for group in ("data", "reproduce"):
        assert cli.run([group]) == 0
        assert f"Usage: detrame {group} [OPTIONS] COMMAND" in capsys.readouterr().out
    assert cli.run(["models", "--help"]) == 0
    assert "--iterations" in capsys.readouterr().out
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"detrame {detrame.__version__}\n"


def test_the_package_runs_as_a_module(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["detrame", "--version"])
    with pytest.raises(SystemExit) as stop:
        runpy.run_module("detrame", run_name="__main__")
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"detrame {detrame.__version__}\n"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("train", "or ddl3, ddl6, ddl9, ddl12."),
        ("reproduce depth", "[default: relu,qmetric,ddl]"),
        ("reproduce uap", "List the missing measurements and take none."),
        ("reproduce noise", "List the missing measurements and take none."),
    ],
)
def test_help_says_what_holds_for_the_command(command: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*command.split(), "--help"]) == 0
    assert said in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["modles"], "Did you mean 'models'"),
        (["models", "--iteration", "2"], "--iterations"),
        (["models", "--iterations", "two"], "a valid integer"),
        (["models", "--iterations", "0"], "iterations must be at least 1, got 0"),
        (["models", "--num-classes", "0"], "num_classes must be at least 1, got 0"),
        (["models", "--in-channels", "-3"], "in_channels must be at least 1, got -3"),
        (["models", "--image-size", "0"], "image_size must be at least 1, got 0"),
        (["models", "--image-size", "1000000000"], "image_size must be at most 1,000,000, got 1,000,000,000"),
        (["models", "--num-classes", "9" * 20], "num_classes must be at most 1,000,000"),
    ],
)
def test_wrong_arguments(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(arguments) == 2
    captured = capsys.readouterr()
    assert complaint in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


@pytest.mark.parametrize(
    ("error", "status"), [(Failure("no data"), 1), (OSError(28, "No space left"), 1), (ValueError("no such"), 2)]
)
def test_exit_status_of_an_error(
    error: Exception, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**options: object) -> None:
        raise error

    monkeypatch.setattr("detrame.models.list_models", fail)
    assert cli.run(["models"]) == status
    assert capsys.readouterr().err == f"detrame: {error}\n"


def test_ctrl_c_ends_in_a_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(**options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("detrame.models.list_models", interrupt)
    assert cli.run(["models"]) == 130
    assert capsys.readouterr().err.strip() == "detrame: interrupted"


@pytest.mark.parametrize("bug", [ZeroDivisionError(), RuntimeError("CUDA error: an illegal memory access")])
def test_a_bug_of_ours_keeps_its_traceback(bug: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**options: object) -> None:
        raise bug

    monkeypatch.setattr("detrame.models.list_models", fail)
    with pytest.raises(type(bug)):
        cli.run(["models"])


def test_the_command_is_installed_and_starts_without_pytorch() -> None:
    code = "import sys; from detrame import cli; cli.run(['--help']); sys.exit('torch' in sys.modules)"
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert time.perf_counter() - start < 5  # under a second on an idle machine; tests run beside each other
    assert "Usage: detrame" in done.stdout


def test_a_recipe_is_printed_without_scikit_learn() -> None:
    """It takes as long to load as PyTorch, and only the digits themselves need it."""
    code = "import sys; from detrame import cli; cli.run(['train', 'plainnet3', '--print-recipe'])"
    code += "; sys.exit('sklearn' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_main_exits_with_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["detrame", "--version"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 0


def test_main_has_memory_kept_for_what_comes_next() -> None:
    code = """
import contextlib, resource, sys, torch
from detrame import cli
cli.run = lambda args: 0
if sys.argv[1] == "kept":
    with contextlib.suppress(SystemExit):
        cli.main()
torch.ones(2**24)  # 64 MiB, freed at once
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
torch.ones(2**23)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    kept, anew = (
        int(subprocess.run([sys.executable, "-c", code, how], capture_output=True, text=True, check=True).stdout)
        for how in ("kept", "anew")
    )
    assert anew > 10  # pages, or huge pages
    assert kept < anew / 2


@pytest.mark.parametrize(("given", "turns"), [({}, "1000"), ({"OMP_WAIT_POLICY": "PASSIVE"}, "0")])
def test_threads_wait_briefly_unless_the_environment_says_when(given: dict[str, str], turns: str) -> None:
    """What OpenMP itself says when PyTorch is loaded."""
    others = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    environment = {**others, "OMP_DISPLAY_ENV": "verbose", **given}
    command = [sys.executable, "-m", "detrame", "models"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    if not (said := re.search(r"GOMP_SPINCOUNT = '(\d+)'", run.stderr)):
        pytest.skip("PyTorch has another OpenMP here")
    assert said[1] == turns


def test_another_c_library_keeps_its_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    cli.keep_freed_memory()
