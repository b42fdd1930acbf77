"""What a compiled step keeps and carries of pictures on a GPU: nothing in single precision."""

import json
from pathlib import Path

from tests.unit.train.children import run_alone


def test_norms_and_their_gradients_write_no_picture_in_single_precision(tmp_path: Path) -> None:
    """What is written is in bf16: what the two convolutions read, and the gradient between them."""
    told = run_alone("tests.unit.train.carried", [], tmp_path)
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout.splitlines()[-1]) == {
        "forward": {"float32": 0, "bfloat16": 2},
        "back": {"float32": 0, "bfloat16": 1},
    }
