"""Makes the golden results of the workflows in `workflows`: a PNG beside each, with its graph inside.

    .venv/bin/python -m tests.golden.make_workflows [--out FOLDER] [NAME ...]

Run it only when a picture is meant to change, and say why in the commit. They run on the embedded model, and
where that is no help on small models and LoRAs of random numbers, which are written anew each time. Knows
nothing of tests.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from calotype.models import catalogue
from calotype.models.save import write_folder
from calotype.models.weights import RandomWeights
from calotype.workflow.png_metadata import png_with_graph
from tests.small_models import shrunk
from tests.unit.models.lora_files import layers_of, random_updates, write_kohya
from tests.workflows import Host

FOLDER = Path(__file__).parent / "workflows"
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


def graph(name: str) -> dict[str, Any]:
    """A workflow in API format."""
    made: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return made


def open_host(place: Path) -> Host:
    """What the workflows run on, with all models they name in `place`."""
    for number, name in enumerate(("sdxl", "sdxl-refiner")):
        write_folder(RandomWeights(shrunk(name), number), place / "checkpoints" / name)
    emoji = catalogue.architecture("emoji")
    (place / "loras").mkdir()
    for seed, name in enumerate(("one", "two")):
        layers = [each for each in layers_of(emoji, ["unet", "text_encoder"]) if "attn" in each[1]]
        updates = random_updates(emoji, layers, seed)
        write_kohya(place / "loras" / f"{name}.safetensors", updates, 1.0, one_encoder=True)
    inputs = {path.name: path.read_bytes() for path in (FOLDER / "inputs").iterdir()}
    return Host(place, inputs)


def main() -> None:
    """Write the results, all of them or those named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("names", nargs="*", default=NAMES)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        host = open_host(Path(place))
        for name in asked.names:
            host.saved.clear()
            host.run(graph(name))
            (picture,) = host.saved
            (asked.out / f"{name}.png").write_bytes(png_with_graph(picture, graph(name), {}))


if __name__ == "__main__":
    main()
