"""`calotype engine presets` says what every preset is made of."""

import json

from typer.testing import CliRunner

from calotype.cli.main import app
from calotype.engine.presets import PRESETS


def test_every_preset_and_pass_is_listed() -> None:
    found = CliRunner().invoke(app, ["engine", "presets"], env={"COLUMNS": "200"}).output
    for preset, passes in PRESETS.items():
        assert preset in found
        assert all(one.name in found and one.about in found for one in passes)


def test_as_json_with_the_effect_on_the_numbers() -> None:
    found = json.loads(CliRunner().invoke(app, ["engine", "presets", "--json"]).output)
    assert found["baseline"] == []
    assert {one["effect"] for one in found["fast"]} <= {"exact", "rounding"}
    assert any(one["effect"] == "lossy" for one in found["cached"])
