"""The pretended driver against what real ones were seen to do."""

import json
from pathlib import Path
from typing import Any

import pytest

from calotype.mig.profiles import model_named, table
from calotype.mig.simulation import fake_smi_output, rules
from calotype.mig.simulation.fake_host import FakeHost, Holder, new_host
from calotype.mig.simulation.rules import Code, SimulatedRefusalError
from tests.unit.mig.conftest import Machine

CAPTURED: dict[str, Any] = json.loads(Path(__file__).with_name("captured.json").read_text("utf-8"))
# The one whose ids no rule that explains the others gives; the simulated driver says that it infers.
UNEXPLAINED = [15, 15, 15]


def switched_on(model: str = "A100-80GB", **settings: Any) -> FakeHost:
    return new_host(model, current=True, pending=True, **settings)


def made(host: FakeHost, numbers: list[int]) -> list[int | None]:
    """The ids the driver gives when nobody says where; None for a refusal."""
    ids: list[int | None] = []
    for number in numbers:
        try:
            ids.append(rules.create_gpu_instance(host, 0, number, None).gi)
        except SimulatedRefusalError:
            ids.append(None)
    return ids


@pytest.mark.parametrize("captured", CAPTURED["transcripts"], ids=lambda each: str(each["cgi"]))
def test_captured_creations_are_reproduced(captured: dict[str, Any]) -> None:
    answers = {mirrored: made(switched_on(mirrored=mirrored), captured["cgi"]) for mirrored in (False, True)}
    if captured["cgi"] == UNEXPLAINED:
        assert captured["gi_ids"] not in answers.values()
        assert "inferred" in (rules.driver_choice.__doc__ or "").lower()
        return
    mirrored = next(which for which, ids in answers.items() if ids == captured["gi_ids"])
    host = switched_on(mirrored=mirrored)
    made(host, captured["cgi"])
    starts = (
        captured.get("starts")
        or captured.get("starts_by_standard_map")
        or captured.get("starts_by_mirrored_map")
    )
    # The guide's two 3g stand the other way round than the ids of an ordinary unit say.
    if starts and captured["cgi"] != [9, 9]:
        assert [cut.start for cut in host.cards[0].cuts] == starts
    assert any("inferred rule" in line for line in host.log)


def test_ids_of_mirrored_units() -> None:
    host = switched_on(mirrored=True)
    assert made(host, [9, 19, 14, 19]) == [1, 11, 6, 12]
    assert [cut.start for cut in host.cards[0].cuts] == [4, 0, 2, 1]


def test_the_same_slice_has_the_same_uuid_again_and_others_have_others() -> None:
    host = switched_on()
    card = host.cards[0]
    first = [
        card.slice_uuid(cut.gi, 0) for cut in (rules.create_gpu_instance(host, 0, 14, s) for s in (0, 2))
    ]
    assert len(set(first)) == 2
    rules.destroy_gpu_instance(host, 0, card.cuts[0].gi)
    assert card.slice_uuid(rules.create_gpu_instance(host, 0, 14, 0).gi, 0) == first[0]


def test_the_listing_of_a_real_card_is_reproduced_to_the_character() -> None:
    profiles, placements, _ = CAPTURED["h200_listing"].split("rc=0\n")
    host = switched_on("H200-141GB")
    assert fake_smi_output.profiles(host, 0) + "\n" == profiles
    assert fake_smi_output.placements(host, 0) + "\n" == placements


def refusal(call: Any) -> Code:
    with pytest.raises(SimulatedRefusalError) as told:
        call()
    return told.value.code


def test_what_the_driver_refuses() -> None:
    host = switched_on()
    cut = rules.create_gpu_instance(host, 0, 14, 0)
    part = rules.create_compute_instance(host, 0, cut.gi)
    assert refusal(lambda: rules.destroy_gpu_instance(host, 0, cut.gi)) is Code.IN_USE, "its inside first"
    assert refusal(lambda: rules.create_gpu_instance(host, 0, 9, 0)) is Code.INSUFFICIENT_RESOURCES
    assert refusal(lambda: rules.create_gpu_instance(host, 0, 14, 1)) is Code.INVALID_ARGUMENT
    assert refusal(lambda: rules.create_compute_instance(host, 0, cut.gi)) is Code.INSUFFICIENT_RESOURCES
    assert refusal(lambda: rules.set_mode(host, 0, False)) is Code.IN_USE
    host.cards[0].holders.append(Holder(41, "python3", cut.gi))
    assert refusal(lambda: rules.destroy_compute_instance(host, 0, cut.gi, part.ci)) is Code.IN_USE
    host.is_root = False
    assert refusal(lambda: rules.create_gpu_instance(host, 0, 14, 2)) is Code.NO_PERMISSION
    host.cards[0].lost = True
    assert refusal(lambda: rules.create_gpu_instance(host, 0, 14, 2)) is Code.GPU_IS_LOST
    assert [c.start for c in host.cards[0].cuts] == [0], "nothing refused has happened"


def test_the_mode_survives_on_ampere_and_not_on_hopper() -> None:
    for model, survives in (("A100-80GB", True), ("H100-80GB-SXM5", False), ("B200-180GB", False)):
        host = new_host(model)
        assert rules.set_mode(host, 0, True) is Code.SUCCESS
        rules.create_gpu_instance(host, 0, 9, 0)
        rules.reboot(host)
        assert host.cards[0].current is survives
        assert host.cards[0].cuts == [], "slices never survive"


def test_passthrough_waits_for_a_reboot() -> None:
    host = new_host("A100-80GB", passthrough=True)
    assert rules.set_mode(host, 0, True) is Code.NOT_SUPPORTED
    assert (host.cards[0].current, host.cards[0].pending) == (False, True)
    assert refusal(lambda: rules.reset(host, 0)) is Code.NOT_SUPPORTED
    rules.reboot(host)
    assert host.cards[0].current


def test_a_call_fails_when_told_to_before_or_after_its_work() -> None:
    for late in (False, True):
        host = switched_on()
        host.fail_at, host.fail_late = [2], late
        rules.create_gpu_instance(host, 0, 14, 0)
        assert refusal(lambda host=host: rules.create_gpu_instance(host, 0, 14, 2)) is Code.UNKNOWN
        assert len(host.cards[0].cuts) == (2 if late else 1)


@pytest.mark.parametrize("model", list(table()))
def test_every_gpu_can_be_pretended(model: str) -> None:
    host = switched_on(model)
    whole = model_named(model).whole
    assert rules.create_gpu_instance(host, 0, whole.profile_id, None).gi == 0
    assert rules.create_compute_instance(host, 0, 0).size == whole.compute_slices


def test_several_processes_see_one_machine(machine: Machine) -> None:
    machine.become(switched_on())
    assert machine.mig("apply", "2g.20gb", "--yes").code == 0
    assert [cut.profile_id for cut in machine.host.cards[0].cuts] == [14]
    assert machine.call("mig", "simulate", machine.path, "--reboot").code == 0
    assert machine.host.cards[0].cuts == []
