"""Weights & Biases offline: what it keeps, and what it must not do."""

from __future__ import annotations

import builtins
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from calotype.core.errors import NotFoundError
from calotype.train.callbacks import wandb
from tests.unit.train.children import run_alone
from tests.unit.train.runs import arguments, metrics, settings, small_recipe, trained

STEPS = 4
STOPPED_AT = 2


@contextmanager
def listening() -> Iterator[tuple[str, list[object]]]:
    """An address that notes whoever comes, for programs that are told it is their proxy."""
    callers: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def note() -> None:
            while True:
                try:
                    connection, who = server.accept()
                except OSError:
                    return
                callers.append(who)
                connection.close()

        thread = threading.Thread(target=note, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", callers
        server.shutdown(socket.SHUT_RDWR)
        thread.join(60)


def rows_in(file: Path) -> tuple[list[dict[str, Any]], Any]:
    """The logged values and the run's own entry, as wandb itself reads them."""
    proto, datastore = map(import_module, ("wandb.proto.wandb_internal_pb2", "wandb.sdk.internal.datastore"))
    store: Any = datastore.DataStore()
    store.open_for_scan(str(file))
    rows, about = [], None
    while (data := store.scan_data()) is not None:
        record: Any = proto.Record()
        record.ParseFromString(data)
        if record.HasField("run"):
            about = record.run
        if record.HasField("history"):
            items = {
                item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item
            }
            rows.append(items)
    store.close()
    return rows, about


@pytest.fixture(scope="module")
def folder(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped by SIGTERM and then went on to its end, each in a process of its own."""
    place = tmp_path_factory.mktemp("wandb")
    (place / "empty.yaml").write_text("{}", encoding="utf-8")
    chosen = settings(
        base, place / "run", trainer__max_steps=STEPS, logging__wandb="offline", logging__wandb_project="here"
    )
    words = ["train", str(place / "empty.yaml"), *arguments(chosen), "--device=cpu"]
    for moment, ending in ((STOPPED_AT, "stopped at step 2"), (100, f"done at step {STEPS}")):
        with listening() as (proxy, callers):
            proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), proxy)
            struck = ["SIGTERM", f"step:{moment}", *words]
            ended = run_alone("tests.unit.train.struck_run", struck, place, more=proxies)
        assert ended.returncode == 0, ended.stderr[-4000:]
        assert callers == []
        assert ended.stdout.startswith(ending)
        assert len(ended.stdout.splitlines()) == 1
        # Our own progress, and not a word of wandb's.
        assert all("samples/s" in line for line in ended.stderr.splitlines()), ended.stderr
    return place / "run"


def test_both_halves_hold_the_values_under_one_id(folder: Path) -> None:
    run_id = (folder / "wandb-id").read_text()
    files = sorted(folder.glob(f"wandb/offline-run-*-{run_id}/run-{run_id}.wandb"))
    assert len(files) == len(list(folder.glob("wandb/offline-run-*"))) == 2
    seen: list[dict[str, Any]] = []
    for file in files:
        rows, about = rows_in(file)
        assert (about.run_id, about.project, about.display_name) == (run_id, "here", "small")
        config = {item.key: json.loads(item.value_json) for item in about.config.update}
        assert config["trainer"]["max_steps"] == STEPS
        seen += rows
    assert [row["_step"] for row in seen] == [1, 2, 3, 4]
    for name in ("loss", "gradient_norm", "learning_rate"):
        assert [row[name] for row in seen] == [line[name] for line in metrics(folder)]


def test_nothing_of_it_lies_elsewhere(folder: Path) -> None:
    assert {path.name for path in folder.parent.iterdir()} == {"empty.yaml", "run"}


def test_without_the_package_the_way_to_it_is_told(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(wandb, "import_module", missing)
    with pytest.raises(
        NotFoundError, match=r"logging\.wandb=offline needs wandb: pip install 'calotype\[train\]'"
    ):
        trained(small_recipe(base, tmp_path / "run", logging__wandb="offline"))


def test_off_it_is_not_even_imported(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def watched(name: str, *rest: Any) -> Any:
        assert name.partition(".")[0] != "wandb"
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", watched)
    assert trained(small_recipe(base, tmp_path / "run", trainer__max_steps=1)).step == 1
