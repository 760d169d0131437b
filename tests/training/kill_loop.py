"""Resume a run in a child process and kill it, at least 20 times at random moments; then let it finish.

    python kill_loop.py RUN THREADS     prints the number of kills

A script of its own, so that the children are forked from a process that has done nothing but import:
what a run loads on its way, too, or most of them would be killed while they load it.
"""

import os
import random
import signal
import sys
import time

import sklearn.datasets  # noqa: F401  (for the digits)
import torch
import torch._dynamo  # for the first optimizer

from detrame.errors import Failure
from detrame.training import load, resume

KILLS = 20


def sitting(path: str, seconds: float | None) -> bool:
    """Resume in a child; after `seconds` (if any) kill it. True if the child was killed."""
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            resume(path)
        except Failure:
            os._exit(3)  # stopped by SIGTERM, checkpoint written
        os._exit(0)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, random.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 3


def main() -> None:
    path = sys.argv[1]
    torch.set_num_threads(int(sys.argv[2]))
    random.seed(0)
    kills = 0
    longest = 0.3
    while kills < KILLS and not load(path).finished:
        kills += sitting(path, random.uniform(0, longest))
        # Long enough to get somewhere, short enough to be killed often: aim at one epoch every other sitting.
        longest *= 1.1 if len(load(path).history) < kills / 2 else 0.9
    while not load(path).finished:
        sitting(path, None)
    print(kills)


if __name__ == "__main__":
    main()
