"""The stand-in nvidia-smi speaks as the real one did, and our reading of it agrees with the machine."""

from pathlib import Path
from typing import Any

import pytest

from calotype.mig import smi_parser as reading
from calotype.mig.driver import DriverError, Refusal
from calotype.mig.profiles import model_named, table
from calotype.mig.simulation import fake_smi, fake_smi_output, rules
from calotype.mig.simulation.fake_driver import SimulatedDriver
from calotype.mig.simulation.fake_host import Holder, new_host
from calotype.mig.smi_driver import SmiDriver
from tests.unit.mig.conftest import Machine
from tests.unit.mig.test_simulation import CAPTURED, switched_on

# As printed on the Azure machine of the text.
SEED = """\
Successfully created GPU instance ID  5 on GPU  0 using profile MIG 2g.20gb (ID 14)
Successfully created compute instance ID  0 on GPU  0 GPU instance ID  5 using profile MIG 2g.20gb (ID  1)
Successfully created GPU instance ID  3 on GPU  0 using profile MIG 2g.20gb (ID 14)
Successfully created compute instance ID  0 on GPU  0 GPU instance ID  3 using profile MIG 2g.20gb (ID  1)
Successfully created GPU instance ID  4 on GPU  0 using profile MIG 2g.20gb (ID 14)
Successfully created compute instance ID  0 on GPU  0 GPU instance ID  4 using profile MIG 2g.20gb (ID  1)
Successfully created GPU instance ID 13 on GPU  0 using profile MIG 1g.10gb+me (ID 20)
Successfully created compute instance ID  0 on GPU  0 GPU instance ID 13 using profile MIG 1g.10gb (ID  0)
"""


@pytest.fixture
def say(machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """`say("mig -lgi")`: the exit code and what was printed, in this process."""
    monkeypatch.setenv(fake_smi.VARIABLE, str(machine.path))

    def call(line: str) -> tuple[int, str]:
        capsys.readouterr()
        code = fake_smi.main(line.split())
        return code, capsys.readouterr().out

    return call


def test_the_texts_transcript_is_reproduced_to_the_character(machine: Machine, say: Any) -> None:
    machine.become(switched_on())
    assert say("mig -cgi 14,14,14,20 -C") == (0, SEED)


def test_the_texts_own_script_cannot_run_twice(machine: Machine, say: Any) -> None:
    machine.become(switched_on())
    script = ("mig -dgi", "mig -cgi 14,14,14,20 -C")
    say(script[1])
    code, words = say(script[0])
    assert (code, "In use by another client" in words) == (19, True)
    assert "Insufficient Resources" in say(script[1])[1]


def test_done_is_said_although_the_mode_is_pending(machine: Machine, say: Any) -> None:
    machine.become(new_host("A100-80GB", passthrough=True))
    code, words = say("-i 0 -mig 1")
    assert (code, words.splitlines()[-1]) == (0, "All done.")
    assert "pending enable state" in words
    assert say("mig -lgi") == (6, "No MIG-enabled devices found.\n")
    assert say("-i 0 --gpu-reset")[0] == 255


# Each kind of table; drivers before Blackwell have no room for its longer names.
VERSIONS = ("450.80.02", "515.65.01", "580.159.04")


@pytest.mark.parametrize(
    ("model", "version"),
    [
        (model, version)
        for model, gpu in table().items()
        for version in (VERSIONS if float(gpu.compute_capability) < 10 else VERSIONS[-1:])
    ],
)
def test_listings_of_every_driver_are_read_back(model: str, version: str) -> None:
    host = switched_on(model)
    host.driver_version = version
    gpu = model_named(model)
    profiles = reading.with_places(
        fake_smi_output.placements(host, 0), 0, reading.parse_profiles(fake_smi_output.profiles(host, 0), 0)
    )
    assert [(p.name, p.profile_id, p.starts, p.memory_slices, p.max_instances) for p in profiles] == [
        (p.name, p.profile_id, p.starts, p.memory_slices, p.max_instances) for p in gpu.profiles
    ]
    assert [p.sms for p in profiles] == [p.sms for p in gpu.profiles]
    assert [p.ofa_engines for p in profiles] == [p.ofa_engines or 0 for p in gpu.profiles]
    smallest = gpu.profiles[0]
    cuts = [rules.create_gpu_instance(host, 0, smallest.profile_id, start) for start in smallest.starts[:3]]
    parts = [rules.create_compute_instance(host, 0, cut.gi) for cut in cuts]
    assert sorted(reading.parse_instances(fake_smi_output.instances(host, 0), 0)) == sorted(
        (cut.gi, cut.profile_id, cut.start) for cut in cuts
    )
    read = reading.parse_compute_instances(fake_smi_output.compute_instances(host, 0), 0)
    assert sorted((gi, ci, part.size) for gi, ci, part in read) == sorted(
        (cut.gi, part.ci, part.size) for cut, part in zip(cuts, parts, strict=True)
    )
    uuids = reading.parse_uuids("\n".join(fake_smi_output.devices(host, [0])))
    assert sorted(uuids.values()) == sorted(host.cards[0].slice_uuid(cut.gi, 0) for cut in cuts)


def test_the_listing_of_a_real_card_is_read() -> None:
    listing, places, _ = CAPTURED["h200_listing"].split("rc=0\n")
    profiles = reading.with_places(places, 0, reading.parse_profiles(listing, 0))
    assert [(p.name, p.memory_gib, p.sms, p.copy_engines) for p in profiles][-1] == (
        "7g.141gb",
        140.0,
        132,
        8,
    )
    assert len(profiles) == 7
    known = model_named("H200-141GB")
    assert [p.starts for p in profiles] == [p.starts for p in known.profiles]


def test_nvidia_smi_and_our_own_driver_describe_one_machine_alike(machine: Machine, nvidia_smi: Path) -> None:
    host = new_host("A100-80GB", "H100-80GB-SXM5", current=True, pending=True)
    for number, start in ((14, 0), (9, 4)):
        cut = rules.create_gpu_instance(host, 0, number, start)
        rules.create_compute_instance(host, 0, cut.gi, 0 if number == 9 else None)
    host.cards[0].holders.append(Holder(4242, "python3 <serve>", host.cards[0].cuts[1].gi, 3 * 2**30))
    machine.become(host)
    for ours, read in zip(SimulatedDriver(machine.path).read(), SmiDriver().read(), strict=True):
        assert (read.index, read.uuid, read.mode, read.driver_version) == (
            ours.index,
            ours.uuid,
            ours.mode,
            ours.driver_version,
        )
        assert read.instances == ours.instances
        assert read.layout == ours.layout
        assert read.model.name == ours.model.name
        assert [p.starts for p in read.model.profiles] == [p.starts for p in ours.model.profiles]


@pytest.mark.parametrize(
    ("spoil", "refusal"),
    [
        ({"loaded": False}, Refusal.NO_DRIVER),
        ({"is_root": False}, Refusal.NO_PERMISSION),
    ],
)
def test_refusals_are_recognised(
    machine: Machine, nvidia_smi: Path, spoil: dict[str, Any], refusal: Refusal
) -> None:
    host = switched_on()
    for name, value in spoil.items():
        setattr(host, name, value)
    machine.become(host)
    with pytest.raises(DriverError) as told:
        SmiDriver().create(0, 14, 0, with_compute=True)
    assert told.value.refusal is refusal
    assert machine.host.cards[0].cuts == []


def test_success_that_made_nothing_is_no_success(
    nvidia_smi: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvidia_smi.write_text("#!/bin/sh\necho 'All done.'\n")
    with pytest.raises(DriverError, match="reported success but created nothing"):
        SmiDriver().create(0, 14, 0, with_compute=True)


def test_a_driver_that_lists_no_shapes_is_helped_out_by_the_table(machine: Machine, nvidia_smi: Path) -> None:
    real = nvidia_smi.with_name("real")
    nvidia_smi.rename(real)
    words = "Failed to display GPU instance profiles: Unknown Error"
    case = f'case "$*" in *-lgip*) echo "{words}"; exit 255;; esac'
    nvidia_smi.write_text(f'#!/bin/sh\n{case}\nexec {real} "$@"\n')
    nvidia_smi.chmod(0o755)
    machine.become(new_host("A100-80GB"))
    (state,) = SmiDriver().read()
    assert state.model == model_named("A100-80GB")


def test_without_nvidia_smi_there_is_no_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DriverError, match="nvidia-smi is not installed"):
        SmiDriver().read()
