import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

import detrame
from detrame.activations import q_metric_relus
from detrame.data import load as load_dataset
from detrame.errors import Failure
from detrame.training import Epoch, Recipe, Run, checkpoint, files, find, load, loop, plan, resume, resume_all, train
from detrame.training.files import write_tensors
from detrame.training.runs import locked
from detrame.training.step import Step
from tests.training import tiny

PART = f".checkpoint.safetensors.{os.getpid()}.part"


def weights(run: Run | Path) -> dict[str, Tensor]:
    path = run.path if isinstance(run, Run) else run
    return load_file(path / "weights.safetensors")


def assert_same_bits(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


def without_seconds(run: Run) -> list[dict[str, Any]]:
    return [{**vars(epoch), "seconds": 0} for epoch in load(run.path).history]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tiny(epochs=4), tmp_path_factory.mktemp("runs") / "run", device="cpu")


def test_a_run_s_folder_holds_it_all(finished: Run) -> None:
    files = {file.name for file in finished.path.iterdir()} - {".lock"}
    assert files == {"recipe.json", "environment.json", "metrics.jsonl", "weights.safetensors", "result.json"}
    assert finished.recipe == tiny(epochs=4)
    assert [epoch.epoch for epoch in finished.history] == [1, 2, 3, 4]
    assert finished.history[-1].train_loss < finished.history[0].train_loss
    scores = finished.scores
    assert scores.last == finished.history[-1].test_accuracy
    assert scores.best == max(epoch.test_accuracy for epoch in finished.history)
    assert finished.history[scores.best_epoch - 1].test_accuracy == scores.best
    environment = finished.environment
    assert environment["torch"] == torch.__version__
    assert environment["data"]["digest"] == load_dataset("digits").digest
    assert environment["hardware"]


def test_a_result_is_the_last_epoch_and_the_best_and_all_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accuracies = iter([50.0, 70.0, 60.0])
    monkeypatch.setattr(loop, "accuracy", lambda logits, labels: next(accuracies))
    monkeypatch.setattr("detrame.training.loop.Stopwatch.seconds", lambda self: 2.0)
    run = train(tiny(epochs=3), tmp_path / "run", device="cpu")
    assert [epoch.seconds for epoch in run.history] == [2.0, 4.0, 6.0]
    assert (run.scores.last, run.scores.best, run.scores.best_epoch, run.scores.seconds) == (60.0, 70.0, 2, 6.0)


def test_load_gives_the_trained_network(finished: Run) -> None:
    run = detrame.load(finished.path)
    test = run.dataset().test
    logits = run.model(test.images / 255)
    measured = 100 * (logits.argmax(1) == test.labels).double().mean().item()
    assert measured == pytest.approx(run.scores.last, abs=0.2)
    assert run.scores.parameters == sum(p.numel() for p in run.model.parameters())


def test_training_is_pytorch_s_sgd_step_by_step(tmp_path: Path) -> None:
    """The whole loop against one written out with PyTorch's optimiser and scheduler, on the same batches."""
    recipe = tiny(epochs=3, lr_milestones=(1, 2), crop_padding=1, flip=True, seed=3)
    run = train(recipe, tmp_path / "run", device="cpu")
    dataset = load_dataset("digits")
    torch.manual_seed(3)
    model = recipe.build(dataset)
    decayed = [p for name, p in model.named_parameters() if not name.endswith((".gain", ".threshold"))]
    rest = [p for name, p in model.named_parameters() if name.endswith((".gain", ".threshold"))]
    groups = [{"params": decayed, "weight_decay": 5e-4}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(groups, lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 2], gamma=0.2)
    batches = detrame.data.Batches(dataset.train, 128, seed=3, crop_padding=1, flip=True, mean=dataset.mean)
    for epoch in range(3):
        model.train()
        right = 0
        for images, labels in batches.epoch(epoch):
            optimizer.zero_grad()
            logits = model(images)
            right += int((logits.argmax(1) == labels).sum())
            F.cross_entropy(logits, labels).backward()
            optimizer.step()
            with torch.no_grad():
                for act in q_metric_relus(model):
                    for i in range(len(act.gain)):
                        act.coupling[i, i, 1, 1] = 0
                    act.gain.data = act.gain.clamp(0, 1)
                    act.threshold.data = act.threshold.clamp(min=0)
        scheduler.step()
        assert run.history[epoch].train_accuracy == pytest.approx(100 * right / len(dataset.train), abs=0.2)
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(weights(run)[name], tensor, msg=name)


def test_the_same_seed_gives_the_same_bits_and_another_does_not(finished: Run, tmp_path: Path) -> None:
    before = torch.get_rng_state()
    again = train(tiny(epochs=4), tmp_path / "again", device="cpu")
    assert torch.equal(torch.get_rng_state(), before)
    assert_same_bits(weights(again), weights(finished))
    other = train(tiny(epochs=4, seed=1), tmp_path / "other", device="cpu")
    assert not torch.equal(weights(other)["2.weight"], weights(finished)["2.weight"])


def test_constraints_hold_after_training(finished: Run) -> None:
    for act in q_metric_relus(finished.model):
        assert (act.coupling != 0).any()
        assert (act.coupling[:, :, 1, 1].diagonal() == 0).all()
        assert ((act.gain >= 0) & (act.gain <= 1)).all()
        assert (act.threshold >= 0).all()


class Interrupt(Exception):
    pass


@pytest.mark.parametrize("checkpoint_every", [1, 3])
def test_resuming_after_any_epoch_gives_the_same_bits(finished: Run, tmp_path: Path, checkpoint_every: int) -> None:
    def interrupt(run: Run, epoch: Epoch) -> None:
        raise Interrupt

    path = plan(tiny(epochs=4), tmp_path / "run", device="cpu").path
    for _ in range(20):
        if load(path).finished:
            break
        try:
            resume(path, checkpoint_every=checkpoint_every, on_epoch=interrupt if checkpoint_every == 1 else None)
        except Interrupt:
            assert not load(path).finished
    assert_same_bits(weights(path), weights(finished))
    assert without_seconds(load(path)) == without_seconds(finished)


def test_epochs_done_again_have_one_line(finished: Run, tmp_path: Path) -> None:
    path, seen = plan(tiny(epochs=4), tmp_path / "run", device="cpu").path, []

    def interrupt(run: Run, epoch: Epoch) -> None:
        seen.append(epoch.epoch)
        if seen in ([1, 2], [1, 2, 1, 2, 3, 4]):  # before any checkpoint, and after that of the third
            raise Interrupt

    for _ in range(2):
        with pytest.raises(Interrupt):
            resume(path, checkpoint_every=3, on_epoch=interrupt)
    resume(path)
    assert without_seconds(load(path)) == without_seconds(finished)


def test_a_resumed_run_says_what_was_no_longer_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = plan(tiny(epochs=4), tmp_path / "run", device="cpu").path
    begun = load(path).environment

    def interrupt(run: Run, epoch: Epoch) -> None:
        raise Interrupt

    for commit in ("aaa", "bbb", "bbb"):
        monkeypatch.setenv("DETRAME_COMMIT", commit)
        with pytest.raises(Interrupt):
            resume(path, on_epoch=interrupt)
    monkeypatch.setenv("DETRAME_COMMIT", "ccc")
    run = resume(path)
    noted = [{"epoch": 1, "commit": "bbb"}, {"epoch": 3, "commit": "ccc"}]
    assert load(run.path).environment == begun | {"commit": "aaa", "resumed": noted}
    (path / "result.json").unlink()  # as a damaged run is trained again
    assert load(resume(path).path).environment == begun | {"commit": "ccc"}


def test_the_most_that_ever_shared_the_device_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (plan(tiny(seed=seed), tmp_path / str(seed), device="cpu") for seed in range(2))

    def begun(trainings: list[loop._Training]) -> list[Failure]:
        for training in trainings:
            training._checkpoint()
        return []

    with monkeypatch.context() as patch:
        patch.setattr(loop, "_side_by_side", begun)
        loop._trained([first, second], 1, None, threading.Event())
    assert resume(first.path).scores.together == 2
    assert train(tiny(), tmp_path / "alone", device="cpu").scores.together == 1


def test_a_signal_between_two_runs_stops_the_second(tmp_path: Path) -> None:
    paths = [plan(tiny(seed=seed), tmp_path / str(seed), device="cpu").path for seed in range(2)]

    def at_the_end(run: Run, epoch: Epoch) -> None:
        if epoch.epoch == run.recipe.epochs:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Failure, match=f"stopped before {paths[1]}: continue with `detrame train --resume {tmp_path}`"):
        loop.resume_all(paths, on_epoch=at_the_end)
    assert [load(path).finished for path in paths] == [True, False]


def test_a_second_signal_does_what_it_always_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(self: Step, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the second was noted too")

    monkeypatch.setattr(Step, "__call__", twice)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # which a job in the background ignores
    try:
        with pytest.raises(KeyboardInterrupt):
            train(tiny(), tmp_path / "run", device="cpu")
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_damaged_run_does_not_keep_the_others_from_training(tmp_path: Path) -> None:
    paths = [plan(tiny(seed=seed), tmp_path / str(seed), device="cpu").path for seed in range(2)]
    (paths[0] / "checkpoint.safetensors").write_bytes(b"half of it")
    with pytest.raises(Failure, match="cannot be read"):
        loop.resume_all(paths)
    assert load(paths[1]).finished


def test_runs_side_by_side_in_this_folder_are_named_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert loop._common_folder([Path("a"), Path("b")]) == "."


def test_two_processes_that_write_one_file_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result.json"

    def slowly(temporary: Path) -> None:
        with temporary.open("w") as file:
            file.write("one ")
            file.flush()
            with monkeypatch.context() as patch:
                patch.setattr(os, "getpid", lambda: -1)
                files.write_text(path, "another")
            assert path.read_text() == "another"
            file.write("whole")

    files.write_whole(path, slowly)
    assert path.read_text() == "one whole"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_the_step_and_says_how_to_resume(
    number: int, finished: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = plan(tiny(epochs=4), tmp_path / "run", device="cpu").path
    step, steps = Step.__call__, 0

    def signalled(self: Step, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        nonlocal steps
        steps += 1
        if steps == 11:  # the third step of the second epoch
            signal.raise_signal(number)
        return step(self, images, labels)

    monkeypatch.setattr(Step, "__call__", signalled)
    before = signal.getsignal(number)
    with pytest.raises(
        Failure, match=f"stopped in epoch 2, after step 3, of {path}: continue with `detrame train --resume {path}`"
    ):
        resume(path)
    assert steps == 11
    stopped = checkpoint.progress_of(path / "checkpoint.safetensors")
    assert (stopped.epoch, stopped.step) == (1, 3)
    assert signal.getsignal(number) is before
    assert_same_bits(weights(resume(path)), weights(finished))
    assert without_seconds(load(path)) == without_seconds(finished)


def test_training_in_a_thread_leaves_signals_alone(tmp_path: Path) -> None:
    thread = threading.Thread(target=train, args=(tiny(epochs=1), tmp_path / "run"), kwargs={"device": "cpu"})
    thread.start()
    thread.join()
    assert load(tmp_path / "run").finished


@pytest.mark.slow
def test_twenty_kills_give_the_same_bits(tmp_path: Path) -> None:
    """SIGKILL and SIGTERM at random moments of one run, checkpoint writes included; see kill_loop.py."""
    recipe = tiny(epochs=40, width=0.1)
    straight = train(recipe, tmp_path / "straight", device="cpu")
    plan(recipe, tmp_path / "killed", device="cpu")
    script = Path(__file__).parent / "kill_loop.py"
    threads = str(torch.get_num_threads())
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "killed"), threads], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 20
    assert_same_bits(weights(tmp_path / "killed"), weights(straight))
    assert without_seconds(load(tmp_path / "killed")) == without_seconds(straight)
    assert not list((tmp_path / "killed").glob(".*.part"))


def test_a_kill_during_the_write_of_a_checkpoint_leaves_the_one_before(
    finished: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
        Path(path).write_bytes(b"half of it")
        raise Interrupt

    path = plan(tiny(epochs=4), tmp_path / "run", device="cpu").path
    real = checkpoint.save
    with monkeypatch.context() as patch:
        saves = []

        def save(*arguments: Any) -> None:
            saves.append(1)
            if len(saves) == 3:
                patch.setattr("detrame.training.files.save_file", cut)
            real(*arguments)

        patch.setattr(checkpoint, "save", save)
        with pytest.raises(Interrupt):
            resume(path)
    assert len(Run(path).history) == 3  # the third epoch's line was written, its checkpoint was not
    assert_same_bits(weights(resume(path)), weights(finished))


def test_validation_images_are_held_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []

    def noted(*arguments: Any, seed: int) -> Any:
        seeds.append(seed)
        return detrame.data.holdout(*arguments, seed=seed)

    monkeypatch.setattr(loop, "holdout", noted)
    run = train(tiny(validation=100, seed=3), tmp_path / "run", device="cpu")
    assert seeds == [3]
    assert run.scores.validation == run.history[-1].validation_accuracy
    assert run.scores.validation is not None
    with pytest.raises(ValueError, match="validation must leave some of 899 training images, got 899"):
        train(tiny(validation=899), tmp_path / "other", device="cpu")
    assert not (tmp_path / "other").exists()


def test_a_loss_that_turns_nan_stops_the_run(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"the loss became (nan|inf) in epoch 1, step \d+.*smaller learning rate"):
        train(tiny(norm=None, lr=1e4, epochs=3), tmp_path / "run", device="cpu")
    with pytest.raises(Failure, match=r"the learning rate is probably too high .*, such as --set lr=0.1$"):
        train(tiny(lr=1e38), tmp_path / "other", device="cpu")
    assert not load(tmp_path / "run").finished


def test_the_rate_to_start_again_with_is_a_tenth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Step, "__call__", lambda self, images, labels: (torch.tensor(torch.nan), torch.tensor(0)))
    with pytest.raises(Failure, match=r"\(it is 0.05\); start again with a smaller one, such as --set lr=0.005$"):
        train(tiny(), tmp_path / "run", device="cpu")


@pytest.mark.parametrize(
    ("device", "complaint"),
    [("gpu", "unknown device 'gpu'"), ("meta", "unknown device 'meta'"), ("cuda", "sees no CUDA device here")],
)
def test_devices_there_are_not(device: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=complaint):
        train(tiny(), tmp_path / "run", device=device)
    assert loop.pick_device("auto") == "cpu"


def test_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [loop.pick_device(name) for name in ("auto", "cuda", "cuda:1")] == ["cuda", "cuda", "cuda:1"]
    with pytest.raises(ValueError, match="device 'cuda:2' asked for, but PyTorch sees 2 here"):
        loop.pick_device("cuda:2")


def test_a_run_goes_on_where_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = plan(tiny(), tmp_path / "run", device="cpu").path
    environment = json.loads((path / "environment.json").read_text())
    (path / "environment.json").write_text(json.dumps(environment | {"device": "cuda"}))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(Failure, match="run was begun on cuda, which is not here: continue it on a machine that has it"):
        resume(path)


def test_a_folder_half_made_is_made_anew(tmp_path: Path) -> None:
    path = plan(tiny(), tmp_path / "run", device="cpu").path
    (path / "recipe.json").unlink()
    assert plan(tiny(), path, device="cpu").recipe == tiny()


def test_a_folder_that_another_process_makes_is_left_to_it(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with locked(tmp_path / "run"), pytest.raises(Failure, match="is being trained by another process"):
        plan(tiny(), tmp_path / "run", device="cpu")


def test_a_run_that_another_process_has_finished_is_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [plan(tiny(seed=seed), tmp_path / str(seed), device="cpu").path for seed in (0, 1)]
    told: list[str] = []

    def on_epoch(run: Run, epoch: Epoch) -> None:
        told.append(run.path.name)
        if len(told) == 1:  # as if another process did so
            resume(paths[1])

    resume_all(paths, on_epoch=on_epoch)
    assert set(told) == {"0"}
    assert [len(load(path).history) for path in paths] == [2, 2]


def test_metrics_are_on_the_disk_before_a_checkpoint_and_no_more_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting for the disk after every epoch would keep the device waiting too."""
    synced: list[tuple[str, int]] = []

    def note(path: Path) -> None:
        if path.name in ("metrics.jsonl", PART):
            synced.append((path.name, len((path.parent / "metrics.jsonl").read_text().splitlines())))

    run = plan(tiny(epochs=5), tmp_path / "run")
    monkeypatch.setattr(files, "_wait_for_disk", note)
    resume(run.path, checkpoint_every=2)
    checkpoints = [epochs for name, epochs in synced if name != "metrics.jsonl"]
    assert checkpoints == [2, 4, 5]
    assert synced == [(name, epochs) for epochs in checkpoints for name in ("metrics.jsonl", PART)]


def test_metrics_that_lag_behind_the_checkpoint(tmp_path: Path) -> None:
    path = plan(tiny(epochs=3), tmp_path / "run", device="cpu").path

    def stop(run: Run, epoch: Epoch) -> None:
        if epoch.epoch == 2:
            raise Interrupt

    with pytest.raises(Interrupt):
        resume(path, on_epoch=stop)
    metrics = path / "metrics.jsonl"
    lines = metrics.read_text().splitlines(keepends=True)
    metrics.write_text(lines[0] + lines[1][:20])
    with pytest.raises(Failure, match=r"metrics.jsonl lacks epochs that .*checkpoint.safetensors has already trained"):
        resume(path)
    metrics.write_text(lines[0] + "damaged\n")
    with pytest.raises(Failure, match=r"metrics.jsonl is damaged .*: delete .*checkpoint.safetensors, then `detrame"):
        resume(path)
    metrics.write_text("".join(lines) + '{"epoch": 3, "lo')
    assert [epoch.epoch for epoch in resume(path).history] == [1, 2, 3]


def test_runs_named_in_two_ways_stop_as_others_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    paths = [plan(tiny(), tmp_path / "a", device="cpu").path, plan(tiny(), "b", device="cpu").path]
    with pytest.raises(loop.Stopped, match=f"continue with `detrame train --resume {tmp_path}`"):
        resume_all(paths, minutes=0)
    assert all(run.finished for run in resume_all(paths, minutes=10)), "time that is not up stops nothing"


def test_a_folder_renamed_to_what_is_not_utf8_is_no_damaged_run(finished: Run, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"r\xff")
    try:
        shutil.copytree(finished.path, path)
    except OSError:
        pytest.skip("this file system takes UTF-8 alone")
    with pytest.raises(Failure, match=r"weights.safetensors is not UTF-8, .* rename its folder$"):
        _ = load(path).model


def test_folders_that_cannot_be_trained_into(finished: Run, tmp_path: Path) -> None:
    with pytest.raises(Failure, match="is not empty: choose another --out, or continue it"):
        train(tiny(), finished.path)
    (tmp_path / "file").write_text("")
    with pytest.raises(Failure, match="cannot make the folder"):
        train(tiny(), tmp_path / "file" / "run")
    with pytest.raises(Failure, match="is not UTF-8, and could not be read again: choose another --out"):
        train(tiny(), tmp_path / os.fsdecode(b"r\xff"))
    assert resume(finished.path).scores == finished.scores
    with pytest.raises(ValueError, match="checkpoint_every must be at least 1, got 0"):
        resume(finished.path, checkpoint_every=0)


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = plan(tiny(), tmp_path / "run", device="cpu").path

    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("detrame.training.files.save_file", full)
    with pytest.raises(Failure, match=r"cannot write .*checkpoint.safetensors .No space left on device."):
        resume(path)
    assert not list(path.glob(".*.part"))


def damaged(finished: Run, to: Path, name: str, content: bytes) -> Path:
    shutil.copytree(finished.path, to)
    (to / name).write_bytes(content)
    return to


@pytest.mark.parametrize(
    "wrong",
    [
        {"last": None},
        {"last": "good"},
        {"last": float("nan")},
        {"seconds": 2e9},
        {"parameters": 0},
        {"together": 0},
        {},
    ],
)
def test_results_that_are_no_scores_are_refused(finished: Run, tmp_path: Path, wrong: dict[str, Any]) -> None:
    whole = json.loads((finished.path / "result.json").read_text())
    scores = whole | wrong if wrong else {"last": 3}  # which lacks all others
    path = damaged(finished, tmp_path / "run", "result.json", json.dumps(scores).encode())
    with pytest.raises(Failure, match=r"result.json is not a result .*: delete .*result.json, then `detrame train"):
        _ = load(path).scores


def test_a_file_that_is_no_checkpoint_says_nothing_of_progress(tmp_path: Path) -> None:
    for metadata in ({}, {"progress": "{}}"}, {"progress": '{"eposh": 3}'}):
        write_tensors(tmp_path / "c.safetensors", {"a": torch.zeros(1)}, metadata)
        with pytest.raises(Failure, match=r"c.safetensors is not a checkpoint .*: delete it to start the run again"):
            checkpoint.progress_of(tmp_path / "c.safetensors")


def test_weights_that_are_not_the_run_s_are_found_out_and_trained_again(finished: Run, tmp_path: Path) -> None:
    content = bytearray((finished.path / "weights.safetensors").read_bytes())
    content[-1] ^= 1
    path = damaged(finished, tmp_path / "run", "weights.safetensors", bytes(content))
    again = f"delete {path / 'result.json'}, then `detrame train --resume {path}` trains it again"
    with pytest.raises(Failure, match=f"weights.safetensors is damaged, or of another run: {again}"):
        _ = load(path).model
    (path / "result.json").unlink()
    assert_same_bits(weights(resume(path)), weights(finished))
    assert without_seconds(load(path)) == without_seconds(finished)


def test_metrics_that_are_no_text_are_found_out_and_trained_again(finished: Run, tmp_path: Path) -> None:
    content = bytearray((finished.path / "metrics.jsonl").read_bytes())
    content[5] ^= 0x80
    path = damaged(finished, tmp_path / "run", "metrics.jsonl", bytes(content))
    with pytest.raises(Failure, match=r"metrics.jsonl is damaged .*: delete .*result.json, then `detrame train"):
        _ = load(path).history
    (path / "result.json").unlink()
    assert without_seconds(resume(path)) == without_seconds(finished)


def test_a_result_of_before_digests_were_noted_has_its_network(finished: Run, tmp_path: Path) -> None:
    result = json.loads((finished.path / "result.json").read_text())
    del result["weights"]
    path = damaged(finished, tmp_path / "run", "result.json", json.dumps(result).encode())
    assert_same_bits(load(path).model.state_dict(), finished.model.state_dict())


def test_a_recipe_that_has_changed_since_the_checkpoint_is_refused(tmp_path: Path) -> None:
    path = plan(tiny(), tmp_path / "run", device="cpu").path

    def interrupt(run: Run, epoch: Epoch) -> None:
        raise Interrupt

    with pytest.raises(Interrupt):
        resume(path, on_epoch=interrupt)
    (path / "recipe.json").write_text(tiny(lr=0.06).to_json())
    with pytest.raises(Failure, match="does not fit its run's recipe: restore that, or delete"):
        resume(path)


def test_files_can_be_read_by_whom_the_umask_lets(finished: Run) -> None:
    modes = {file.name: file.stat().st_mode for file in finished.path.iterdir() if file.suffix != ".lock"}
    assert modes["weights.safetensors"] == modes["recipe.json"]


def test_damaged_runs_are_refused_with_the_file_s_name(finished: Run, tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"weights.safetensors cannot be read"):
        _ = load(damaged(finished, tmp_path / "1", "weights.safetensors", b"no weights")).model
    with pytest.raises(Failure, match=r"result.json cannot be read"):
        _ = load(damaged(finished, tmp_path / "2", "result.json", b"{")).scores
    with pytest.raises(Failure, match=r"does not hold a JSON object: begin again by .*--recipe .*recipe.json"):
        load(damaged(finished, tmp_path / "3", "environment.json", b"[]"))
    with pytest.raises(Failure, match=r"recipe.json is not a recipe"):
        _ = load(damaged(finished, tmp_path / "4", "recipe.json", b"{}")).recipe
    with pytest.raises(Failure, match=r"metrics.jsonl is damaged"):
        _ = load(damaged(finished, tmp_path / "5", "metrics.jsonl", b"{}\n")).history
    torn = (finished.path / "metrics.jsonl").read_bytes() + b'{"epoch": 9, "los'
    assert load(damaged(finished, tmp_path / "torn", "metrics.jsonl", torn)).history == finished.history
    with pytest.raises(Failure, match=r"another version of detrame \(format 99, this one reads 1\)"):
        load(damaged(finished, tmp_path / "6", "environment.json", b'{"format": 99}'))
    other = tiny(width=0.1).to_json().encode()
    with pytest.raises(Failure, match=r"weights.safetensors does not fit .*recipe.json"):
        _ = load(damaged(finished, tmp_path / "7", "recipe.json", other)).model


@pytest.mark.parametrize("name", ["run", "recipe.json", "environment.json", "weights.safetensors"])
def test_a_run_without_the_permission_to_read_it_is_not_damaged(
    finished: Run, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != name)  # root may read it all
    for read in (find, load):
        with pytest.raises(Failure, match=rf"no permission to read \S*{name}: change that with chmod"):
            read(finished.path)


def test_a_run_that_cannot_be_written_into_says_what_to_do(tmp_path: Path) -> None:
    run = plan(tiny(epochs=1), tmp_path / "run", device="cpu")
    (run.path / ".lock").unlink()
    (run.path / ".lock").mkdir()  # which not even root can write
    with pytest.raises(Failure, match=r"cannot write into \S*run \(.*\): make it writable, or resume a copy of it"):
        resume(run.path)


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    def unfinished(name: str, recipe: Recipe) -> Path:
        return plan(recipe, tmp_path / name, device="cpu").path

    path = unfinished("a", tiny())
    (path / "checkpoint.safetensors").write_bytes(b"damaged")
    with pytest.raises(Failure, match=r"checkpoint.safetensors cannot be read"):
        resume(path)
    nn_state = {"model.0.weight": torch.zeros(1)}
    write_tensors(path / "checkpoint.safetensors", nn_state, {})
    with pytest.raises(Failure, match="does not fit its run's recipe"):
        resume(path)


def test_a_run_begun_on_other_images_is_refused(tmp_path: Path) -> None:
    path = plan(tiny(), tmp_path / "run", device="cpu").path
    environment = json.loads((path / "environment.json").read_text())
    environment["data"]["digest"] = "0" * 64
    (path / "environment.json").write_text(json.dumps(environment))
    with pytest.raises(Failure, match="was begun on other images than digits now holds"):
        resume(path)


def test_two_processes_never_train_into_one_folder(tmp_path: Path) -> None:
    path = plan(tiny(), tmp_path / "run", device="cpu").path
    with locked(path), pytest.raises(Failure, match="is being trained by another process"):
        resume(path)


def test_find(finished: Run, tmp_path: Path) -> None:
    assert [run.path for run in find(finished.path)] == [finished.path]
    assert [run.path for run in find(finished.path.parent)] == [finished.path]
    with pytest.raises(ValueError, match="there is no run in"):
        find(tmp_path)
    with pytest.raises(ValueError, match="is not a folder"):
        find(tmp_path / "nowhere")
    with pytest.raises(Failure, match=r"is not a run: it has no recipe.json$"):
        load(tmp_path)
    with pytest.raises(Failure, match=rf"it has no recipe.json; did you mean {finished.path}\?$"):
        load(finished.path.parent)
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "environment.json").write_text("{}")  # where `plan` was killed
    unfinished = plan(tiny(), tmp_path / "run", device="cpu")
    assert [run.path for run in find(tmp_path)] == [unfinished.path]
    with pytest.raises(Failure, match="is not finished: continue it with"):
        _ = unfinished.scores
    assert unfinished.history == []


def test_an_mlp_of_the_user_s_own_needs_no_recipe() -> None:
    """The projections and groups alone are enough for a loop of one's own."""
    model = nn.Sequential(nn.Linear(4, 8), detrame.QMetricReLU(8, dim=0), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(detrame.parameter_groups(model), lr=0.1)
    detrame.project_after(optimizer, model)
    x, y = torch.randn(64, 4), torch.randint(2, (64,))
    first = None
    for _ in range(50):
        loss = F.cross_entropy(model(x), y)
        first = first or loss.item()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < first  # type: ignore[operator]


def test_a_stop_is_said_even_after_another_run_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [
        plan(tiny(lr=1e38), tmp_path / "nan", device="cpu").path,
        plan(tiny(), tmp_path / "good", device="cpu").path,
    ]
    step = Step.__call__

    def signalled(self: Step, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        if self.optimizer.param_groups[0]["lr"] < 1:
            signal.raise_signal(signal.SIGTERM)
        return step(self, images, labels)

    monkeypatch.setattr(Step, "__call__", signalled)
    with pytest.raises(
        Failure, match=f"after step 1, of {paths[1]}: continue with `detrame train --resume {tmp_path}`"
    ):
        loop.resume_all(paths)


def test_momentum_comes_back_in_the_layout_of_its_parameter(tmp_path: Path) -> None:
    """A fused optimiser on a GPU, where weights are channels-last, takes no other."""

    def fresh() -> tuple[nn.Module, Step]:
        torch.manual_seed(0)
        model = detrame.create_model("resnet8").to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return model, Step(model, momentum=0.9, nesterov=False, weight_decay=0.0)

    model, step = fresh()
    step.set_lr(0.1)
    step(torch.rand(4, 3, 8, 8), torch.arange(4))
    checkpoint.save(tmp_path / "c.safetensors", step, checkpoint.Progress(), tiny())
    other, again = fresh()
    checkpoint.restore(tmp_path / "c.safetensors", again, tiny())
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        kept = again.optimizer.state[theirs]["momentum_buffer"]
        assert kept.stride() == theirs.stride()
        assert torch.equal(kept, step.optimizer.state[ours]["momentum_buffer"])


def test_random_numbers_of_a_gpu_go_on_where_they_were(tmp_path: Path) -> None:
    """By generators of the CPU, which have the same calls."""

    def fresh() -> tuple[Step, torch.Generator]:
        step = Step(nn.Linear(2, 2), momentum=0.9, nesterov=False, weight_decay=0.0)
        step.random = torch.Generator().manual_seed(3)
        return step, step.random

    step, random = fresh()
    torch.rand(5, generator=random)
    checkpoint.save(tmp_path / "c.safetensors", step, checkpoint.Progress(), tiny())
    again, restored = fresh()
    checkpoint.restore(tmp_path / "c.safetensors", again, tiny())
    assert torch.equal(torch.rand(5, generator=restored), torch.rand(5, generator=random))


def test_what_a_killed_process_left_half_written_is_removed(tmp_path: Path) -> None:
    path = plan(tiny(epochs=1), tmp_path / "run", device="cpu").path
    (path / ".checkpoint.safetensors.1.part").write_bytes(b"half of it")
    resume(path)
    assert not list(path.glob(".*.part"))


def test_only_recipes_are_trained(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"expected a Recipe, as .* makes, got str"):
        train("plainnet3", tmp_path / "run")  # type: ignore[arg-type]
