"""Layout files and mig-parted's configurations: read, written, refused."""

import json
from pathlib import Path

import pytest

from calotype.core.errors import DoesNotFitError, NotFoundError, RequestError
from calotype.mig import layout_file, mig_parted
from calotype.mig.apply import apply
from calotype.mig.layout import EMPTY, OFF, ComputePart, Layout, Slice
from calotype.mig.profiles import model_named
from calotype.mig.simulation.fake_driver import SimulatedDriver
from calotype.mig.simulation.fake_host import new_host

DEFAULTS = Path(__file__).with_name("parted_defaults.yaml").read_text("utf-8")


def test_the_default_configurations_load_and_suit_the_right_gpus() -> None:
    found = mig_parted.validated(mig_parted.parse_parted(DEFAULTS, "defaults"))
    assert found["all-1g.5gb"].suits == ("A100-40GB",)
    assert found["all-3g.71gb"].suits == ("H200-141GB",)
    assert set(found["all-balanced"].suits) == {"A100-40GB", "A100-80GB", "H100-80GB-SXM5", "A30-24GB"}
    assert len(found["all-enabled"].suits) == 13
    # Cards that are not in the table are nobody's mistake, and the file says more than we know.
    assert found["all-2g.47gb"].suits == ()
    assert "no GPU in the table has '2g.47gb'" in found["all-2g.47gb"].unjudged[0]
    assert "device-filter" in found["all-balanced"].unjudged[0]


def test_each_gpu_gets_what_its_filter_and_number_say(tmp_path: Path) -> None:
    states = SimulatedDriver(new_host("A100-40GB", "A100-80GB", "A30-24GB", "H200-141GB")).read()
    file = mig_parted.parse_parted(DEFAULTS, "defaults")
    balanced = mig_parted.targets(file, "all-balanced", states)
    assert set(balanced) == {0, 1, 2}, "nothing is said of an H200"
    shapes = {
        index: sorted(states[index].model.by_id(part.profile_id).name for part in layout.slices)
        for index, layout in balanced.items()
    }
    assert shapes[0] == ["1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb"]
    assert shapes[2] == ["1g.6gb", "1g.6gb", "2g.12gb"]
    three = SimulatedDriver(new_host("A100-40GB", "A100-40GB", "A100-40GB")).read()
    custom = mig_parted.targets(file, "custom", three)
    assert custom[0] == OFF
    assert custom[1] == custom[2] == Layout.of([Slice(0, 14), Slice(2, 14), Slice(4, 14), Slice(6, 19)])
    assert set(mig_parted.targets(file, "all-enabled", states).values()) == {EMPTY}
    with pytest.raises(RequestError, match=r"has no profile '1g\.5gb'"):
        mig_parted.targets(file, "all-1g.5gb", states)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    driver = SimulatedDriver(new_host("A100-80GB", "A30-24GB"))
    apply(driver, 0, Layout.of([Slice(0, 14), Slice(2, 14), Slice(4, 9)]), tmp_path / "saved.json")
    text = mig_parted.as_parted(driver.read(), "now")
    file = mig_parted.parse_parted(text, "written")
    assert mig_parted.targets(file, "now", driver.read()) == {0: driver.read()[0].layout, 1: OFF}


BAD = {
    "unknown field": (
        "mig-enabled: true, mig-placement: 3",
        r"mig-placement: is not a known setting; did you mean 'mig-",
    ),
    "field of another spelling": ("mig_enable: true", r"is not a known setting"),
    "missing field": ("mig-devices: {}", r"mig-enabled: is required"),
    "count 0": ("mig-enabled: true, mig-devices: {1g.10gb: 0}", r"at least 1"),
    "count as text": ("mig-enabled: true, mig-devices: {1g.10gb: '7'}", r"integer"),
    "slices without mode": ("mig-enabled: false, mig-devices: {1g.10gb: 1}", r"while mig-enabled is false"),
}


@pytest.mark.parametrize(("entry", "message"), BAD.values(), ids=BAD)
def test_bad_configurations_are_refused(entry: str, message: str) -> None:
    text = f"version: v1\nmig-configs:\n  here:\n  - {{devices: all, {entry}}}\n"
    with pytest.raises(RequestError, match=message):
        mig_parted.parse_parted(text, "bad.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version: v2\nmig-configs: {}\n", "version"),
        ("version: v1\nmig-configs: {}\nextra: 1\n", "extra: is not a known setting"),
        ("version: [v1\n", "is not valid YAML"),
        ("- a\n- b\n", "is not a mig-parted configuration"),
    ],
)
def test_files_of_another_kind_are_refused(text: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        mig_parted.parse_parted(text, "bad.yaml")


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ("{3g.40gb: 3}", r"\{3g\.40gb: 3\} is impossible: 3× 3g\.40gb do not fit on A100-80GB"),
        ("{1g.5gb: 1, 1g.10gb+me: 1}", "no single GPU has all of these"),
    ],
)
def test_configurations_no_gpu_can_be_are_refused(shapes: str, message: str) -> None:
    entry = f"{{devices: all, mig-enabled: true, mig-devices: {shapes}}}"
    text = f"version: v1\nmig-configs:\n  a:\n  - {entry}\n"
    with pytest.raises(RequestError, match=message):
        mig_parted.validated(mig_parted.parse_parted(text, "many.yaml"))


def test_labels_and_contradictions() -> None:
    states = SimulatedDriver(new_host("A100-80GB")).read()
    file = mig_parted.parse_parted(DEFAULTS, "defaults")
    with pytest.raises(NotFoundError, match="did you mean 'all-balanced'"):
        mig_parted.targets(file, "all-balance", states)
    with pytest.raises(NotFoundError, match="applies to no GPU"):
        mig_parted.targets(file, "all-3g.71gb", states)
    entries = "  - {devices: all, mig-enabled: true}\n  - {devices: [0], mig-enabled: false}\n"
    both = f"version: v1\nmig-configs:\n  a:\n{entries}"
    with pytest.raises(RequestError, match="two different configurations for GPU 0"):
        mig_parted.targets(mig_parted.parse_parted(both, "both"), "a", states)


def test_layout_files_keep_places_and_insides(tmp_path: Path) -> None:
    driver = SimulatedDriver(new_host("A100-80GB"))
    layout = Layout.of([Slice(0, 9, (ComputePart(0, 0, 1), ComputePart(1, 1, 2))), Slice(6, 20)])
    apply(driver, 0, layout, tmp_path / "saved.json")
    text = layout_file.saved(driver.read()).text()
    assert layout_file.targets(layout_file.parse_layouts(text, "f"), driver.read()) == {0: layout}
    assert json.loads(text)["gpus"][0]["slices"][1] == {"profile": "1g.10gb+me", "start": 6}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"colour": "red"}, RequestError, "colour: is not a known setting"),
        ({"uuid": "GPU-other"}, NotFoundError, "is for GPU GPU-other .*which this machine does not have"),
        ({"slices": [{"profile": "1g.5gb", "start": 0}]}, RequestError, "A100-40GB has it"),
        ({"slices": [{"profile": "2g.20gb", "start": 1}]}, DoesNotFitError, "cannot start at memory slice 1"),
        ({"mig_enabled": "yes"}, RequestError, "mig_enabled"),
    ],
)
def test_bad_layout_files_are_refused(
    change: dict[str, object], error: type[Exception], message: str
) -> None:
    states = SimulatedDriver(new_host("A100-80GB")).read()
    values = json.loads(layout_file.saved(states).text())
    values["gpus"][0] |= change
    with pytest.raises(error, match=message):
        layout_file.targets(layout_file.parse_layouts(json.dumps(values), "bad.json"), states)


def test_a_file_that_is_not_json_is_refused() -> None:
    with pytest.raises(RequestError, match="is not valid JSON"):
        layout_file.parse_layouts("{", "bad.json")
    assert model_named("a100-80gb").name == "A100-80GB"
