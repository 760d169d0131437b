"""TensorBoard events of a run, on request; `pip install detrame[tensorboard]`."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from detrame.errors import Failure
from detrame.training import Epoch, OnEpoch, Run


@contextmanager
def events(wanted: bool) -> Iterator[OnEpoch]:
    """What to call after each epoch: writes its figures into the run's folder, or does nothing."""
    if not wanted:
        yield lambda run, epoch: None
        return
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise Failure("TensorBoard is not installed: pip install 'detrame[tensorboard]'") from error
    writers: dict[Path, Any] = {}
    with ExitStack() as open_writers:

        def record(run: Run, epoch: Epoch) -> None:
            if run.path not in writers:
                writers[run.path] = open_writers.enter_context(closing(SummaryWriter(str(run.path))))
            for name, value in vars(epoch).items():
                if name != "epoch" and value is not None:
                    writers[run.path].add_scalar(name, value, epoch.epoch)

        yield record
