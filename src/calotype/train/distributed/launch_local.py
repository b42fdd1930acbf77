"""Start a run's processes on this machine, as torchrun would.

On a stop signal torchrun exits with an error whatever its processes do. Here the processes get the signal and
torchrun does not: they save and exit with success, and so does the launcher.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from calotype.core.errors import ExitCode
from calotype.spec.recipe import Recipe
from calotype.train.signals import SignalShelter, children_of

_log = logging.getLogger(__name__)
_POLL_S = 0.1


def wants_processes(recipe: Recipe) -> bool:
    """Whether the recipe wants several processes on one machine and no launcher has started them."""
    trainer = recipe.trainer
    started = trainer.elastic or "WORLD_SIZE" in os.environ
    return trainer.devices > 1 and trainer.nodes == 1 and not started


def run_processes(count: int, words: Sequence[str], *, take_stops: bool) -> int:
    """Run `calotype WORDS` in `count` processes; returns 0, or the exit code of the first that failed.

    `take_stops` means that the processes handle stop signals themselves and exit with success.
    """
    from torch.distributed.run import get_args_parser, run  # noqa: PLC0415 - its parser alone costs a second

    # The same default as torchrun's, which would print a long warning about it.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    options = ["--standalone", f"--nproc-per-node={count}"]
    if take_stops:
        options.append("--signals-to-handle=SIGQUIT")
    arguments = get_args_parser().parse_args([*options, "-m", "calotype", *words])
    try:
        if take_stops:
            with _forward_stop_signals():
                run(arguments)
        else:
            run(arguments)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        code = failure.exitcode
        outcome = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        _log.error("process %d of %d %s", rank, count, outcome)
        return 128 - code if code < 0 else code
    except SignalException:
        return ExitCode.CANCELLED
    return ExitCode.OK


@contextmanager
def _forward_stop_signals() -> Iterator[None]:
    """Forward a stop signal of this process once to every process that is started within.

    Children inherit the blocked signals, so a signal during their startup does not kill them.
    """
    finished = threading.Event()
    with SignalShelter() as stop:

        def forward() -> None:
            signaled: set[int] = set()
            while not finished.wait(_POLL_S):
                for pid in set(children_of(os.getpid())) - signaled if stop.requested else ():
                    signaled.add(pid)
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGTERM)

        forwarder = threading.Thread(target=forward, name="forward stop signals", daemon=True)
        forwarder.start()
        try:
            yield
        finally:
            finished.set()
            forwarder.join()
