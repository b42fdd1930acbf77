"""The unit and its layout file: correct for systemd, the same when written again, gone when removed."""

import json
import shlex
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest

from calotype.mig import persist
from calotype.mig.compose import Deployment, compose_file, firewall_lines, run_script, served
from calotype.mig.simulation.fake_driver import SimulatedDriver
from calotype.mig.simulation.fake_host import new_host
from tests.unit.mig.conftest import Machine


def unit(**changes: str) -> str:
    return persist.unit_text([sys.executable, "-m", "calotype"], "/etc/calotype/mig-layout.json", **changes)


def settings(text: str) -> ConfigParser:
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    return parser


def verify(path: Path) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", "verify", "--recursive-errors=no", "--man=no", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.parametrize("driver", [None, 'simulated:/a folder/with 100% $trange "names".json'])
def test_systemd_finds_nothing_wrong(tmp_path: Path, driver: str | None) -> None:
    path = tmp_path / persist.UNIT
    path.write_text(unit(driver=driver) if driver else unit())
    done = verify(path)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_odd_names_survive_the_quoting() -> None:
    odd = 'simulated:/a folder/with 100% $trange "names" and \\ back.json'
    line = settings(unit(driver=odd))["Service"]["ExecStart"].replace("%%", "%").replace("$$", "$")
    assert shlex.split(line)[-2:] == ["--driver", odd]


def test_systemd_would_find_something_wrong(tmp_path: Path) -> None:
    path = tmp_path / persist.UNIT
    path.write_text(unit().replace("TimeoutStartSec", "TimeoutStart"))
    assert "TimeoutStart" in verify(path).stderr
    path.write_text(unit().replace(sys.executable, "/no/such/program"))
    assert verify(path).returncode != 0


def test_order_against_driver_and_containers() -> None:
    parts = settings(unit())
    assert "nvidia-persistenced.service" in parts["Unit"]["After"].split()
    assert {"docker.service", "containerd.service", "kubelet.service"} <= set(parts["Unit"]["Before"].split())
    # The text's unit came after the target that wanted it, and so after the containers.
    assert "default.target" not in unit()
    assert parts["Install"]["WantedBy"] == "multi-user.target"


def test_no_reboot_and_no_endless_restart() -> None:
    parts = settings(unit())
    assert "reboot" not in unit()
    assert "Restart" not in parts["Service"]
    assert parts["Service"]["Type"] == "oneshot"
    assert parts["Service"]["ExecStart"].endswith("mig restore /etc/calotype/mig-layout.json --yes")


def test_written_once_enabled_and_removed(tmp_path: Path) -> None:
    first = persist.install(tmp_path, unit(), "{}")
    wanted = tmp_path / "etc/systemd/system/multi-user.target.wants" / persist.UNIT
    assert wanted.is_symlink(), "enabled"
    stamps = [path.stat().st_mtime_ns for path in first.paths]
    second = persist.install(tmp_path, unit(), "{}")
    assert [path.stat().st_mtime_ns for path in second.paths] == stamps, "the same again writes nothing"
    persist.remove(tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() or path.is_symlink()]
    assert persist.remove(tmp_path).paths == ()


def test_the_command_shows_before_it_writes(machine: Machine, tmp_path: Path) -> None:
    machine.become(new_host("A100-80GB"))
    root = tmp_path / "root"
    shown = machine.mig("persist", "14,14,14,20", "--root", root)
    assert shown.code == 0
    assert "nothing was written" in shown.out
    assert "1g.10gb+me" in shown.out
    assert not root.exists()
    done = machine.mig("persist", "14,14,14,20", "--root", root, "--yes")
    assert done.code == 0, done.err
    assert f"--driver simulated:{machine.path}" in (root / persist.UNIT_PLACE).read_text()
    assert machine.mig("persist", "--remove", "--root", root, "--yes").code == 0
    assert not (root / persist.LAYOUT_PLACE).exists()


def test_a_program_hears_that_nothing_was_written(machine: Machine, tmp_path: Path) -> None:
    machine.become(new_host("A100-80GB"))
    for words in (("14,14,14,20",), ("--remove",)):
        shown = machine.mig("persist", *words, "--root", tmp_path / "root", "--json")
        assert json.loads(shown.out) == {"commands": [], "paths": []}
        assert "add --yes to apply" in shown.err


def test_what_is_kept_of_one_gpu_stays_when_another_is_kept(machine: Machine, tmp_path: Path) -> None:
    machine.become(new_host("H100-80GB-SXM5", "H100-80GB-SXM5"))
    kept = tmp_path / "root" / persist.LAYOUT_PLACE
    for index, wants in enumerate(("1g.10gb×2", "3g.40gb", "4g.40gb")):
        how = ("--gpu", index % 2, "--root", tmp_path / "root", "--yes")
        assert machine.mig("persist", wants, *how).code == 0
    gpus = json.loads(kept.read_text())["gpus"]
    assert [[part["profile"] for part in gpu["slices"]] for gpu in gpus] == [["4g.40gb"], ["3g.40gb"]]


def test_a_layout_that_cannot_be_is_not_kept(machine: Machine, tmp_path: Path) -> None:
    machine.become(new_host("A100-80GB"))
    assert machine.mig("persist", "9,9,9", "--root", tmp_path / "root", "--yes").code == 5
    assert not (tmp_path / "root").exists()


def test_one_container_a_slice(machine: Machine, tmp_path: Path) -> None:
    from omegaconf import OmegaConf

    machine.become(new_host("A100-80GB"))
    assert machine.mig("apply", "14,14,14,20", "--yes").code == 0
    asked = Deployment("example/serve:1", ("serve", "--name", "it's $HOME"), folder="/srv/$1")
    slices = served(SimulatedDriver(machine.path).read(), asked)
    uuids = [each.uuid for each in slices]
    assert len(set(uuids)) == 4
    compose: Any = OmegaConf.to_container(OmegaConf.create(compose_file(slices, asked)))
    services = compose["services"]
    assert list(services) == [each.name for each in slices]
    for each, service in zip(slices, services.values(), strict=True):
        (device,) = service["deploy"]["resources"]["reservations"]["devices"]
        assert device["device_ids"] == [each.uuid]
        assert service["ports"] == [f"{each.port}:8188"]
        assert service["restart"] == "unless-stopped"
        assert service["healthcheck"]["test"][0] == "CMD"
        # Compose would put its own variable there.
        assert service["command"] == ["serve", "--name", "it's $$HOME"]
        assert service["volumes"] == [f"/srv/$$1/{each.name}:/var/lib/calotype"]
    assert len({service["volumes"][0] for service in services.values()}) == 4
    assert firewall_lines(slices)[0] == "sudo ufw allow 8081/tcp"

    # Docker's place is taken by a program that writes down what it was asked.
    (tmp_path / "docker").write_text('#!/bin/sh\nprintf "%s\\n" "$@" >> "$0.log"\n')
    (tmp_path / "docker").chmod(0o755)
    subprocess.run(
        ["sh", "-c", run_script(slices, asked)],
        check=True,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        timeout=300,
    )
    said = (tmp_path / "docker.log").read_text().splitlines()
    assert [word for word in said if word.startswith('"device=')] == [f'"device={uuid}"' for uuid in uuids]
    assert said.count("it's $HOME") == 4


@pytest.mark.parametrize("how", [(), ("--render",), ("--remove",)])
def test_deploying_without_slices_is_refused(machine: Machine, how: tuple[str, ...]) -> None:
    machine.become(new_host("A100-80GB"))
    assert "no GPU has a slice" in machine.mig("deploy", *how).err
