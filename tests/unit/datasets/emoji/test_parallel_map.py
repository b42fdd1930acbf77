"""Work shared among processes: the order kept, and no standing still when one of them dies."""

import os
import signal

import pytest

from calotype.core.errors import CalotypeError
from calotype.datasets.emoji.parallel_map import process_pool


def half(number: int) -> float:
    if number < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return number / 2


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_order_of_the_things(workers: int) -> None:
    with process_pool(workers) as share_out:
        assert list(share_out(half, range(100))) == [number / 2 for number in range(100)]


def test_a_worker_that_is_killed_ends_the_work_with_a_reason() -> None:
    with (
        pytest.raises(CalotypeError, match="one of 2 worker processes was killed"),
        process_pool(2) as share_out,
    ):
        list(share_out(half, [1, -1, 2]))
