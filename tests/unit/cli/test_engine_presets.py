"""`calotype engine presets` says what every preset is made of."""

import json

from typer.testing import CliRunner

from calotype.cli.main import app
from calotype.engine.presets import PASSES, PRESETS


def test_every_preset_and_pass_is_listed() -> None:
    found = CliRunner().invoke(app, ["engine", "presets"], env={"COLUMNS": "200"}).output
    presets, passes = ([line.split() for line in part.splitlines()[1:]] for part in found.split("\n\n"))
    effects = {words[0]: words[1] for words in presets if words[0] in PRESETS}
    assert effects.keys() == PRESETS.keys()
    assert {name for name, effect in effects.items() if effect == "lossy"} == {
        "int8",
        "int8-static",
        "fp8",
        "cached",
    }
    assert [words[0] for words in passes] == list(PASSES)
    assert all(one.about in found for one in PASSES.values())
    assert all(one.name in found.split("\n\n")[0] for made_of in PRESETS.values() for one in made_of)


def test_as_json_with_the_effect_on_the_numbers() -> None:
    found = json.loads(CliRunner().invoke(app, ["engine", "presets", "--json"]).output)
    assert found["baseline"] == []
    assert {one["effect"] for one in found["fast"]} <= {"exact", "rounding"}
    assert any(one["effect"] == "lossy" for one in found["cached"])
    where = {one["pass"]: one["only_on"] for one in found["fast"]}
    assert (where["cuda_graph"], where["winograd"], where["own_forward"]) == ("cuda", "cpu", None)
