"""The real NVML bindings against a pretended driver, in a process of their own since it is loaded once."""

import json
from typing import Any

import pytest

from tests.unit.cli.doctor.conftest import RunPython

GIB = 1024**3

_SURVEY = """
from calotype.cli.output import print_json
from calotype.core.nvml import NvmlGpus
print_json(NvmlGpus().survey())
"""
_COUNTS = """
import ctypes
from calotype.core.nvml import NvmlGpus
library = ctypes.CDLL("libnvidia-ml.so.1")
print(library.stand_in_ever_opened(), end=" ")
NvmlGpus().survey()
NvmlGpus().survey()
print(library.stand_in_ever_opened(), library.stand_in_open_count())
"""

_JOULES = """
from calotype.core.nvml import energy_meter
meter, nobody = (energy_meter(f"GPU-{uuid}-0000-0000-0000-000000000000") for uuid in ("aaaaaaaa", "dddddddd"))
print(meter(), meter(), nobody())
"""


def survey(run_python: RunPython, driver: str, **environment: str) -> dict[str, Any]:
    done = run_python("-c", _SURVEY, driver=driver, **environment)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_a_whole_card_is_described(run_python: RunPython) -> None:
    answer = survey(run_python, "current")
    assert (answer["driver"], answer["driver_cuda"], answer["trouble"]) == ("580.99.01", "13.2", None)
    assert answer["gpus"][0] == {
        "index": 0,
        "name": "NVIDIA H200",
        "uuid": "GPU-aaaaaaaa-0000-0000-0000-000000000000",
        "memory_total_bytes": 140 * GIB,
        "memory_free_bytes": 139 * GIB,
        "num_sms": 132,
        "compute_capability": "9.0",
        "mig": {"current": False, "pending": False},
        "mig_devices": [],
        "power_limit_watts": 700.0,
        "refusals": [],
    }


def test_a_card_in_slices_lists_them_across_the_gap(run_python: RunPython) -> None:
    card = survey(run_python, "current")["gpus"][1]
    assert card["mig"] == {"current": True, "pending": True}
    assert (card["num_sms"], card["compute_capability"]) == (108, "8.0")
    first, second = card["mig_devices"]
    assert first == {
        "index": 0,
        "name": "NVIDIA A100-SXM4-40GB MIG 3g.20gb",
        "uuid": "MIG-cccccccc-2222-2222-2222-222222222222",
        "memory_total_bytes": 20 * GIB,
        "memory_free_bytes": 19 * GIB,
        "num_sms": 42,
        "gpu_instance": 2,
        "compute_instance": 0,
    }
    assert (second["index"], second["num_sms"], second["gpu_instance"]) == (2, 14, 9)
    assert (card["power_limit_watts"], card["refusals"]) == (None, [])


def test_pending_mode_differs_from_current(run_python: RunPython) -> None:
    answer = survey(run_python, "current", STAND_IN_CARD_0_MIG_PENDING="1")
    assert answer["gpus"][0]["mig"] == {"current": False, "pending": True}


def test_missing_symbols_of_an_old_driver_leave_gaps_and_no_complaint(run_python: RunPython) -> None:
    for card in survey(run_python, "old")["gpus"]:
        assert card["name"].startswith("NVIDIA")
        assert card["memory_total_bytes"] > 0
        assert (card["mig"], card["num_sms"], card["mig_devices"]) == (None, None, [])
        assert card["refusals"] == []


def test_a_driver_that_cannot_be_opened_is_too_old(run_python: RunPython) -> None:
    answer = survey(run_python, "ancient")
    assert answer["trouble"] == {"kind": "driver_too_old", "message": "Function Not Found"}
    assert answer["gpus"] == []


def test_no_driver(run_python: RunPython) -> None:
    answer = survey(run_python, "none")
    assert answer["trouble"] == {"kind": "no_driver", "message": "NVML Shared Library Not Found"}


@pytest.mark.parametrize(
    ("code", "kind"),
    [(9, "driver_not_loaded"), (4, "no_permission"), (18, "driver_mismatch"), (999, "other")],
)
def test_a_driver_that_refuses_to_open_says_why(run_python: RunPython, code: int, kind: str) -> None:
    answer = survey(run_python, "current", STAND_IN_INIT_ERROR=str(code))
    assert answer["trouble"]["kind"] == kind
    assert answer["trouble"]["message"]
    assert answer["gpus"] == []


def test_a_refused_count_keeps_the_driver_version(run_python: RunPython) -> None:
    answer = survey(run_python, "current", STAND_IN_COUNT_ERROR="4")
    assert answer["driver"] == "580.99.01"
    assert answer["trouble"]["kind"] == "no_permission"


def test_a_lost_card_does_not_hide_the_other(run_python: RunPython) -> None:
    healthy, lost = survey(run_python, "current", STAND_IN_CARD_1_ERROR="15")["gpus"]
    assert healthy["name"] == "NVIDIA H200"
    assert (lost["index"], lost["name"], lost["refusals"]) == (1, None, ["card: GPU is lost"])


def test_refused_memory_is_unknown_and_told(run_python: RunPython) -> None:
    whole, cut = survey(run_python, "current", STAND_IN_MEMORY_ERROR="4")["gpus"]
    assert (whole["memory_total_bytes"], whole["num_sms"]) == (None, 132)
    assert whole["refusals"] == ["memory: Insufficient Permissions"]
    assert cut["mig_devices"][0]["memory_free_bytes"] is None
    assert "slice 0 memory: Insufficient Permissions" in cut["refusals"]


def test_a_refused_slice_is_told(run_python: RunPython) -> None:
    card = survey(run_python, "current", STAND_IN_SLICE_ERROR="4")["gpus"][1]
    assert card["mig_devices"] == []
    assert card["refusals"] == ["slice 0: Insufficient Permissions", "slice 2: Insufficient Permissions"]


@pytest.mark.parametrize("failure", ["", "STAND_IN_COUNT_ERROR", "STAND_IN_CARD_1_ERROR"])
def test_importing_opens_nothing_and_every_opening_is_closed(run_python: RunPython, failure: str) -> None:
    done = run_python("-c", _COUNTS, driver="current", **({failure: "4"} if failure else {}))
    assert done.stdout.split() == ["0", "2", "0"], done.stderr


@pytest.mark.parametrize(
    ("environment", "joules"), [({}, "2.5 5.0 None"), ({"STAND_IN_ENERGY_ERROR": "3"}, "None None None")]
)
def test_energy_is_told_by_cards_that_count_it(
    run_python: RunPython, environment: dict[str, str], joules: str
) -> None:
    done = run_python("-c", _JOULES, driver="current", **environment)
    assert done.stdout.strip() == joules, done.stderr


def test_without_a_driver_there_is_no_energy(run_python: RunPython) -> None:
    done = run_python("-c", _JOULES, driver="current", STAND_IN_INIT_ERROR="9")
    assert done.stdout.strip() == "None None None", done.stderr
