import subprocess
from pathlib import Path

import pytest

import detrame
from detrame.training import environment


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a repository that the package is taken to run from."""
    monkeypatch.delenv("DETRAME_COMMIT", raising=False)
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "someone")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "someone@example.org")
    here = tmp_path / "project" / "detrame"
    (here / "training").mkdir(parents=True)
    for file in ("__init__.py", "functional.py", "training/loop.py"):
        (here / file).write_text("")
    git(here, "init", "--quiet")
    git(here, "commit", "--quiet", "--allow-empty", "--message", "of the project")
    monkeypatch.setattr(detrame, "__file__", str(here / "__init__.py"))
    return here


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, check=True)


def test_the_commit_is_marked_if_any_of_the_package_has_changed(package: Path) -> None:
    git(package, "add", ".")
    git(package, "commit", "--quiet", "--message", "the package")
    clean = environment.commit()
    assert clean is not None
    assert len(clean) == 40
    (package / "functional.py").write_text("changed")
    assert environment.commit() == f"{clean}+changes"
    assert environment.short_commit(environment.commit()) == f"{clean[:7]}+changes"


def test_the_commit_of_a_project_that_holds_the_package_is_not_the_package_s(package: Path) -> None:
    assert environment.commit() is None
    assert environment.short_commit(None) == "unknown"
