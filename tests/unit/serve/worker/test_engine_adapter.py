"""The real engine under the batcher: company changes no picture, and what goes wrong in it is one job's.

The tolerance is the one docs/serving.md states.
"""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from queue import SimpleQueue
from typing import Any, ClassVar
from weakref import WeakSet

import pytest
import torch
from PIL import Image
from torch.utils._python_dispatch import TorchDispatchMode

from calotype.core.errors import ExitCode
from calotype.core.progress import Silent
from calotype.engine import cuda_graphs
from calotype.engine.engine import Engine
from calotype.engine.load import load
from calotype.engine.passes.cuda_graph import CUDA_GRAPH
from calotype.engine.presets import build_networks, resolve_passes
from calotype.imaging.image_io import read_record
from calotype.models.resolve import embedded_folder
from calotype.serve.ipc.channel import BlockingChannel
from calotype.serve.ipc.messages import (
    FROM_WORKER,
    TO_WORKER,
    Evaluated,
    Failed,
    Finished,
    ModelFailed,
    SamplingValues,
    Stepped,
    Work,
)
from calotype.serve.worker.cuda_timing import GpuTimes
from calotype.serve.worker.engine_adapter import RealEngine, RealLoader
from calotype.serve.worker.main import loader_of, work
from calotype.serve.worker.options import WorkerOptions
from calotype.serve.worker.protocols import DeviceLostError
from calotype.spec.generate_request import GenerateRequest
from tests.engines import begun, difference, relative, small_engine
from tests.small_models import shrunk_folder
from tests.unit.models.lora_files import layers_of, random_updates, write_diffusers
from tests.unit.serve.worker.bench import Bench
from tests.unit.serve.worker.real_bench import SIX, bench_of, files_of, most_difference, pictures_of

MOST_DIFFERENCE = 1
"""In steps of 1/255, in fp32."""


@pytest.mark.parametrize("preset", ["baseline", "fast"])
def test_six_jobs_that_join_at_different_times_make_the_pictures_each_makes_alone(
    preset: str, tmp_path: Path
) -> None:
    loader = RealLoader(device="cpu", preset=preset)
    real = loader.load("emoji", Silent())
    # As on a GPU, so that rows for nobody are among them.
    real.shapes_cost = preset == "fast"
    bench = bench_of(real, most_rows=16)
    for knobs in SIX:
        bench.add(**{**knobs, "width": 64, "height": 64})
        bench.turns(1)
    bench.to_the_end()
    evaluations = [(news.rows, news.jobs) for news in bench.heard(Evaluated)]
    assert max(jobs for _, jobs in evaluations) >= 5
    assert bench.steps(SIX[1]["prompt"]) == [(1, 3), (2, 3), (3, 3)], "heun evaluates twice a step"
    pictures, engine = pictures_of(bench), real.engine
    for knobs in SIX:
        alone = engine.generate(GenerateRequest.parse({**knobs, "width": 64, "height": 64}))
        made = pictures[knobs["prompt"]]
        assert most_difference(made, alone.images) <= MOST_DIFFERENCE
        for file, record in zip(files_of(bench)[knobs["prompt"]], alone.records, strict=True):
            (tmp_path / "picture.png").write_bytes(file)
            assert read_record(tmp_path / "picture.png") == record
    different = [pictures[knobs["prompt"]][0] for knobs in SIX]
    assert difference(different[0], different[1]) > 30


def test_presets_chosen_by_jobs_make_their_own_engines_pictures(tmp_path: Path) -> None:
    knobs: dict[str, Any] = {"width": 64, "height": 64, "steps": 2, "cfg": 3.0, "seed": 5}
    request = {"prompt": "a red apple", **knobs}
    bench = Bench(RealLoader(device="cpu", preset="baseline"))
    for job, preset in (("baseline", None), ("int8", "int8")):
        bench.batcher.add(Work(job_id=job, model="emoji", preset=preset, request=request))
    bench.to_the_end()
    made = pictures_of(bench)
    assert most_difference(made["baseline"], made["int8"]) > MOST_DIFFERENCE, "they can be told apart"
    for preset, (file,) in files_of(bench).items():
        alone = load("emoji", device="cpu", preset=preset).generate(GenerateRequest.parse(request))
        assert most_difference(made[preset], alone.images) <= MOST_DIFFERENCE
        (tmp_path / "picture.png").write_bytes(file)
        record = read_record(tmp_path / "picture.png")
        assert record is not None
        assert record.preset == preset


def engine_on(folder: Path = Path("/nonexistent"), preset: str = "baseline") -> RealEngine:
    return RealEngine(small_engine("emoji", models_folder=folder, preset=preset))


SMALL: dict[str, Any] = {"width": 32, "height": 32, "steps": 2, "cfg": 3.0}


def alone(engine: RealEngine, prompt: str, **knobs: Any) -> list[Image.Image]:
    return engine.engine.generate(prompt, **{**SMALL, **knobs}).images


def test_jobs_with_different_loras_make_their_own_pictures(tmp_path: Path) -> None:
    """With the preset that remembers most of what follows from the weights."""
    (tmp_path / "loras").mkdir()
    real = engine_on(tmp_path, "fast")
    architecture = real.engine.model.architecture
    layers = [layer for layer in layers_of(architecture, ("unet", "text_encoder")) if "attn" in layer[1]]
    for seed, name in enumerate(("one", "two")):
        updates = random_updates(architecture, layers, seed)
        write_diffusers(tmp_path / "loras" / f"{name}.safetensors", updates)
    jobs: dict[str, list[dict[str, Any]]] = {
        "plain": [],
        "first": [{"name": "one"}],
        "both": [{"name": "one"}, {"name": "two", "strength": 0.5}],
        "first too": [{"name": "one"}],
    }
    # Read in slices, between which other jobs' LoRAs are merged.
    jobs["a long one, " * 700] = [{"name": "two"}]
    bench = bench_of(real)
    for prompt, loras in jobs.items():
        bench.add(prompt, **{**SMALL, "steps": 9}, loras=loras)
    bench.to_the_end()
    pictures = pictures_of(bench)
    for prompt, loras in jobs.items():
        assert most_difference(pictures[prompt], alone(real, prompt, steps=9, loras=loras)) <= MOST_DIFFERENCE
    assert most_difference(pictures["first"], alone(real, "first", steps=9)) > 5


@pytest.mark.parametrize(("model", "preset"), [("emoji", "baseline"), ("sdxl", "fast")])
def test_rows_for_nobody_change_nobodys_numbers(model: str, preset: str) -> None:
    engine = small_engine(model, preset=preset)
    runs = [begun(engine, {**SMALL, "seed": seed, "cfg": cfg})[0] for seed, cfg in ((1, 3.0), (2, 1.0))]
    for rows in (0, 3, 4, 8):
        found = engine.evaluate(runs, least_rows=rows)
        assert [len(answer) for answer in found] == [1, 1]
        for answer, expected in zip(found, engine.evaluate(runs), strict=True):
            assert relative(answer, expected) < 1e-5


def test_a_picture_of_nan_is_its_own_jobs_failure() -> None:
    class Poisoned(RealEngine):
        def evaluate(self, *given: Any, **named: Any) -> Sequence[torch.Tensor]:
            answers = list(super().evaluate(*given, **named))
            answers[0] = answers[0] * float("nan")
            return answers

    real = Poisoned(small_engine("emoji"))
    bench = bench_of(real)
    for prompt in ("poisoned", "good", "good too"):
        bench.add(prompt, **SMALL)
    bench.to_the_end()
    (failed,) = bench.heard(Failed)
    assert failed.job_id == "poisoned"
    assert "NaN" in failed.failure.message
    assert bench.finished() == {"good", "good too"}


def test_out_of_memory_of_torch_is_split_and_every_picture_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    real = engine_on()
    evaluate = real.engine.evaluate

    def cramped(runs: Sequence[Any], *, least_rows: int) -> list[torch.Tensor]:
        if len(runs) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate more than there is")
        return evaluate(runs, least_rows=least_rows)

    monkeypatch.setattr(real.engine, "evaluate", cramped)
    bench = bench_of(real, most_rows=16)
    prompts = [f"job {number}" for number in range(5)]
    for prompt in prompts:
        bench.add(prompt, **SMALL)
    bench.to_the_end()
    monkeypatch.undo()
    pictures = pictures_of(bench)
    for prompt in prompts:
        assert most_difference(pictures[prompt], alone(real, prompt)) <= MOST_DIFFERENCE


def test_what_was_in_memory_when_it_ran_out_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that remembers its frames would keep what did not fit until after the next try."""
    real, seen = engine_on(), []

    class Large:
        alive = 0

        def __init__(self) -> None:
            Large.alive += 1

        def __del__(self) -> None:
            Large.alive -= 1

    def cramped(_runs: Sequence[Any], *, least_rows: int) -> list[torch.Tensor]:
        seen.append(Large.alive)
        large = Large()
        raise torch.OutOfMemoryError(f"no room for {large} and {least_rows} rows")

    monkeypatch.setattr(real.engine, "evaluate", cramped)
    bench = bench_of(real)
    for prompt in ("a", "b"):
        bench.add(prompt, **SMALL)
    bench.to_the_end()
    assert bench.failed() == {"a": "does_not_fit", "b": "does_not_fit"}
    assert seen == [0] * 5, "both together, and each twice"


class Tape:
    """Stands for a CUDA graph, which keeps the memory of what it recorded."""

    held: ClassVar[WeakSet[Tape]] = WeakSet()
    pool = None

    def __init__(self, function: Callable[..., Any], _inputs: Any, _pool: Any) -> None:
        self._function = function
        self.held.add(self)

    def replay(self, inputs: Any) -> Any:
        return self._function(*inputs)


def test_a_picture_that_has_no_room_beside_recordings_is_made_without_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cuda_graphs, "_Graph", Tape)
    model = small_engine("emoji", preset="fast").model
    passes = (*resolve_passes(model, "fast"), CUDA_GRAPH)
    real = RealEngine(Engine(model, networks=build_networks(model, passes)))
    evaluate = real.engine.evaluate

    def cramped(runs: Sequence[Any], *, least_rows: int) -> list[torch.Tensor]:
        if runs[0].total_steps == 1 and Tape.held:
            raise torch.OutOfMemoryError("CUDA out of memory. Graphs keep it")
        return evaluate(runs, least_rows=least_rows)

    monkeypatch.setattr(real.engine, "evaluate", cramped)
    bench = bench_of(real)
    bench.add("small", **SMALL)
    bench.rest()
    assert len(Tape.held) == 1
    bench.add("large", **{**SMALL, "width": 64, "height": 64, "steps": 1})
    bench.to_the_end()
    assert bench.finished() == {"small", "large"}


def test_main_memory_runs_out_like_a_devices() -> None:
    class Greedy(RealEngine):
        def release_memory(self) -> None:
            relieved.append(True)

    relieved: list[bool] = []
    real = Greedy(small_engine("emoji"))
    forward = real.engine.model.unet.forward

    def greedy(*args: Any, **kwargs: Any) -> Any:
        if len(args[0]) > 2:
            torch.empty(2**50)
        return forward(*args, **kwargs)

    real.engine.model.unet.forward = greedy
    bench = bench_of(real)
    for prompt in ("a", "b"):
        bench.add(prompt, **SMALL)
    bench.to_the_end()
    assert bench.finished() == {"a", "b"}
    assert relieved == [True]


class Event:
    """A CUDA event that notes what is done with it, and is over when it is waited for."""

    told: ClassVar[list[str]] = []
    made: ClassVar[int] = 0

    def __init__(self, **_: bool) -> None:
        self.number, self.over = Event.made, False
        Event.made += 1

    def record(self) -> None:
        self.told.append(f"marks {self.number}")

    def query(self) -> bool:
        return self.over

    def synchronize(self) -> None:
        self.told.append(f"waits for {self.number}")
        self.over = True

    def elapsed_time(self, end: Event) -> float:
        return 1000.0 * (end.number + self.number)


def test_on_a_gpu_one_evaluation_is_asked_for_ahead_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    real = engine_on()
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(real, "_evaluations", GpuTimes())
    told = Event.told
    monkeypatch.setattr(real.engine, "evaluate", lambda _, least_rows: told.append(f"asks {least_rows}"))
    for rows in (1, 2, 3):
        real.evaluate([], least_rows=rows)
    first = ["marks 0", "asks 1", "marks 1"]
    second = ["marks 2", "asks 2", "marks 3", "waits for 1"]
    assert told == [*first, *second, "marks 4", "asks 3", "marks 5", "waits for 3"]
    assert real.evaluation_s == 5.0


def test_guidance_of_one_job_does_not_narrow_the_batch_of_others() -> None:
    bench = bench_of(engine_on(), most_rows=32)
    bench.add("not guided", **{**SMALL, "cfg": 1.0, "steps": 1})
    for number in range(12):
        bench.add(f"guided {number}", **{**SMALL, "steps": 1})
    bench.turns(1)
    assert [news.rows for news in bench.heard(Evaluated)] == [25]


def test_an_error_of_the_device_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    real = engine_on()

    def broken(*_: Any, **__: Any) -> list[torch.Tensor]:
        raise torch.AcceleratorError("an illegal memory access was encountered")

    monkeypatch.setattr(real.engine, "evaluate", broken)
    bench = bench_of(real)
    bench.add("a", **SMALL)
    with pytest.raises(DeviceLostError, match="illegal"):
        bench.batcher.step()


OTHERS_WORDS = [
    torch.AcceleratorError("CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("Triton Error [CUDA]: out of memory"),
]
"""Of those who ask the device for memory without torch: a graph that is made ready to run, and libraries."""


@pytest.mark.parametrize("error", OTHERS_WORDS, ids=["a graph", "a library", "a kernel"])
def test_a_full_device_is_no_lost_one_whoever_finds_it_full(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    real = engine_on()
    evaluate, refused = real.engine.evaluate, []

    def cramped(runs: Sequence[Any], *, least_rows: int) -> list[torch.Tensor]:
        if len(runs) > 1:
            refused.append(len(runs))
            raise error
        return evaluate(runs, least_rows=least_rows)

    monkeypatch.setattr(real.engine, "evaluate", cramped)
    bench = bench_of(real)
    for prompt in ("a", "b", "c", "d"):
        bench.add(prompt, **SMALL)
    bench.to_the_end()
    assert bench.finished() == {"a", "b", "c", "d"}
    assert refused == [4, 2], "what did not fit is not tried again"


class _Computed(TorchDispatchMode):
    """Notes what torch computes."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operations.append(str(func))
        return func(*args, **(kwargs or {}))


def test_threads_that_make_files_compute_nothing_with_torch() -> None:
    """OpenMP gives every thread that computes a team of its own, which then takes processors from the steps:
    on two cores they took nearly twice as long from the second picture on."""
    engine = engine_on()
    work = Work(job_id="1", model="emoji", request={"prompt": "a", "steps": 1, "seed": 1})
    order = engine.prepare(work, engine.read(work, ()))
    run = order.begin(0)
    run.send(*engine.evaluate([run], least_rows=0))
    encode = order.finish(0, run)
    with _Computed() as seen:
        made = encode()
    assert made.data.startswith(b"\x89PNG")
    looks = {"aten._local_scalar_dense.default", "aten.detach.default"}
    assert set(seen.operations) <= looks, "no more than a look at what is there"


def test_given_pictures_travel_as_bytes_and_are_noted_by_their_hash() -> None:
    real = engine_on()
    bench = bench_of(real)
    given, mask = Image.effect_noise((40, 40), 80).convert("RGB"), Image.new("L", (40, 40))
    mask.paste(255, (0, 0, 20, 40))
    files = []
    for image in (given, mask):
        buffer = BytesIO()
        image.save(buffer, "PNG")
        files.append(buffer.getvalue())
    noted = {"path": "holiday.png", "sha256": "0" * 64}
    request = {"prompt": "a", "seed": 3, "strength": 0.6, "image": noted, **SMALL}
    bench.batcher.add(Work(job_id="a", model="m", request=request, has_image=True), files[:1])
    bench.batcher.add(
        Work(job_id="b", model="m", request={**request, "mask": None}, has_image=True, has_mask=True), files
    )
    bench.to_the_end()
    pictures = pictures_of(bench)
    knobs = {"seed": 3, "strength": 0.6}
    assert most_difference(pictures["a"], alone(real, "a", image=given, **knobs)) <= MOST_DIFFERENCE
    assert (
        most_difference(pictures["b"], alone(real, "a", image=given, mask=mask, **knobs)) <= MOST_DIFFERENCE
    )
    last = next(message.request for message in bench.heard(Finished) if message.job_id == "b")
    assert last["image"] == {"path": "holiday.png", "sha256": hashlib.sha256(files[0]).hexdigest()}
    assert last["mask"]["sha256"] == hashlib.sha256(files[1]).hexdigest()


def test_a_request_cannot_make_the_worker_read_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    Image.new("RGB", (64, 64)).save(secret)
    noted = {"path": str(secret), "sha256": hashlib.sha256(secret.read_bytes()).hexdigest()}
    bench = bench_of(engine_on())
    bench.add("a", image=noted, **SMALL)
    bench.batcher.add(
        Work(job_id="b", model="m", request={"prompt": "b", **SMALL}, has_image=True), [b"no picture"]
    )
    bench.to_the_end()
    assert bench.failed() == {"a": "bad_request", "b": "bad_request"}


def test_what_a_model_cannot_do_is_refused_alone() -> None:
    bench = bench_of(engine_on())
    bench.add("too large", **{**SMALL, "width": 16384, "height": 16384, "tile_vae": False})
    bench.add("no such lora", loras=[{"name": "missing"}], **SMALL)
    bench.add("no eta", eta=0.5, sampler="euler", **SMALL)
    bench.add("good", **SMALL)
    bench.to_the_end()
    assert bench.failed() == {
        "too large": "does_not_fit",
        "no such lora": "not_found",
        "no eta": "bad_request",
    }
    assert bench.finished() == {"good"}


def test_who_looks_sees_small_pictures() -> None:
    bench = bench_of(engine_on())
    bench.add("a", previews=True, **{**SMALL, "steps": 3})
    bench.to_the_end()
    previews = [files[0] for message, files in bench.messages if isinstance(message, Stepped) and files]
    assert [Image.open(BytesIO(file)).size for file in previews] == [(8, 8)] * 2


def test_a_model_is_described_before_it_is_loaded() -> None:
    loader = RealLoader(device="cpu")
    about = loader.describe("emoji")
    engine = loader.load("emoji", Silent()).engine
    assert about.bytes == engine.model.weight_bytes
    assert about.sha256 == engine.model.identity.sha256
    assert about.architecture == engine.model.identity.architecture
    assert loader.memory_bytes > 0
    assert (loader.device, loader.precision) == ("cpu", "fp32")


def test_a_model_is_described_with_its_sampling_defaults(tmp_path: Path) -> None:
    turbo = shrunk_folder(tmp_path, "sdxl")
    file = turbo / "scheduler" / "scheduler_config.json"
    changes = {"_class_name": "EulerAncestralDiscreteScheduler", "timestep_spacing": "trailing"}
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    loader = loader_of(WorkerOptions(device="cpu", models=(str(turbo),)))
    expected = SamplingValues(steps=4, cfg=1.0, sampler="euler_ancestral", schedule="trailing")
    assert loader.describe(turbo.name).sampling == expected
    usual = SamplingValues(steps=20, cfg=7.5, sampler="dpmpp_2m", schedule="karras")
    assert loader.describe("emoji").sampling == usual


def test_a_path_is_called_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "mine").symlink_to(embedded_folder())
    loader = loader_of(WorkerOptions(device="cpu", models=(str(tmp_path / "mine"),)))
    about = loader.describe("mine")
    assert about.name == "mine"
    assert about.sha256 == loader.describe("emoji").sha256
    assert loader.load("mine", Silent())


def test_a_first_model_that_is_not_there_is_said_before_the_end(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    channel = BlockingChannel(theirs, TO_WORKER)
    options = WorkerOptions(device="cpu", models=("../emoji",), models_folder=tmp_path)
    assert work(channel, SimpleQueue(), options) == ExitCode.BAD_REQUEST
    channel.close()
    *_, (failed, _) = BlockingChannel(ours, FROM_WORKER)
    assert isinstance(failed, ModelFailed)
    assert failed.model == "../emoji"
    assert failed.failure.kind == "bad_request"
    ours.close()
