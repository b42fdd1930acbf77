"""The processes of a run on this machine, started as torchrun would. Knows nothing of what they do.

Told to stop, torchrun ends with an error whatever its processes make of it. Here they are told and it is not:
they save and end well, and so does the whole.
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
_LOOKS_EVERY_S = 0.1


def wants_processes(recipe: Recipe) -> bool:
    """Whether the recipe asks for several on one machine, and nobody has started them."""
    trainer = recipe.trainer
    started = trainer.elastic or "WORLD_SIZE" in os.environ
    return trainer.devices > 1 and trainer.nodes == 1 and not started


def run_processes(count: int, words: Sequence[str], *, take_stops: bool) -> int:
    """`calotype WORDS` in so many processes; 0, or the exit code of the first that failed.

    `take_stops` says that they end well when they are told to stop, and may be left to it.
    """
    from torch.distributed.run import get_args_parser, run  # noqa: PLC0415 - its parser alone costs a second

    # What torchrun sets where nothing is said; it would say so at length.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    options = ["--standalone", f"--nproc-per-node={count}"]
    if take_stops:
        options.append("--signals-to-handle=SIGQUIT")
    asked = get_args_parser().parse_args([*options, "-m", "calotype", *words])
    try:
        if take_stops:
            with _passing_on():
                run(asked)
        else:
            run(asked)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        code = failure.exitcode
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        _log.error("process %d of %d %s", rank, count, how)
        return 128 - code if code < 0 else code
    except SignalException:
        return ExitCode.CANCELLED
    return ExitCode.OK


@contextmanager
def _passing_on() -> Iterator[None]:
    """Every process that is started within is told when this one is, once.

    It inherits that signals are held back, so being told while it still loads does not kill it.
    """
    over = threading.Event()
    with SignalShelter() as stop:

        def tell() -> None:
            told: set[int] = set()
            while not over.wait(_LOOKS_EVERY_S):
                for pid in set(children_of(os.getpid())) - told if stop.requested else ():
                    told.add(pid)
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGTERM)

        teller = threading.Thread(target=tell, name="passes stops on", daemon=True)
        teller.start()
        try:
            yield
        finally:
            over.set()
            teller.join()
