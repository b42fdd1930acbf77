"""The feed: nothing lost, nothing repeated, the same after a resume, however many ranks and workers."""

import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
import torch

from calotype.core.errors import RequestError
from calotype.spec.recipe_sections import DataConfig
from calotype.train.data.bad_samples import DataError
from calotype.train.data.dataloader import build_single_pass
from calotype.train.data.dataset import Delivery
from calotype.train.data.precomputed.index import Provenance
from calotype.train.data.precomputed.writer import PrecomputedWriter
from calotype.train.data.sources.webdataset_writer import Packed, write_shards
from calotype.train.data.types import Batch
from tests.unit.train.data.specimens import (
    batches_of,
    feed_of,
    fill_folder,
    fill_shards,
    keys_of,
    needs,
    part,
    picture,
    same,
)


def all_ranks(data: DataConfig, rounds: int, world: int, *, micro: int = 2, seen: int = 0) -> list[Batch]:
    """The batches of all ranks in their global order."""
    each = [
        batches_of(data, rounds, micro=micro, rank=rank, world_size=world, samples_seen=seen)
        for rank in range(world)
    ]
    return [batch for turn in zip(*each, strict=True) for batch in turn]


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_no_sample_is_lost_or_repeated_over_ranks_and_workers(
    tmp_path: Path, world: int, workers: int
) -> None:
    """Two epochs of 12, exactly; and the samples are what their names say."""
    fill_shards(tmp_path, 12, 5)
    data = part("shards", tmp_path, num_workers=workers)
    batches = all_ranks(data, 12 // world, world)
    keys = keys_of(batches)
    assert len(keys) == 24
    assert len(set(keys[:12])) == len(set(keys[12:])) == 12
    assert keys[:12] != keys[12:]
    for batch in batches:
        assert batch.pixels is not None
        numbers = [round((float(row[0, 0, 0]) + 1) * 127.5) for row in batch.pixels]
        assert [f"picture {number}" for number in numbers] == list(batch.captions)
        assert [f"s{number:03d}" for number in numbers] == [key.partition(":")[2] for key in batch.keys]


def test_workers_change_nothing(tmp_path: Path) -> None:
    fill_folder(tmp_path, 7, [(20, 16), (16, 33)])
    options = {"crop": "random", "random_flip": True}
    alone = batches_of(part("folder", tmp_path, **options), 6)
    for workers in (1, 2):
        others = batches_of(part("folder", tmp_path, num_workers=workers, **options), 6)
        assert all(same(a, b) for a, b in zip(alone, others, strict=True))


@pytest.mark.parametrize("buckets", [False, True])
@pytest.mark.parametrize("done", [1, 3, 8])
def test_a_resumed_feed_goes_on_to_the_bit(tmp_path: Path, done: int, *, buckets: bool) -> None:
    fill_folder(tmp_path, 7, [(16, 16), (16, 40)])
    data = part("folder", tmp_path, crop="random", random_flip=True, buckets=buckets)
    whole = batches_of(data, 12, micro=2)
    with feed_of(data, micro=2) as feed:
        for _ in range(done):
            next(feed)
        seen = feed.samples_seen
    assert seen == done * 2
    resumed = batches_of(data, 12 - done, micro=2, samples_seen=seen)
    assert all(same(a, b) for a, b in zip(whole[done:], resumed, strict=True))


@pytest.mark.parametrize("buckets", [False, True])
def test_a_resume_with_another_number_of_ranks_is_the_same_global_sequence(
    tmp_path: Path, *, buckets: bool
) -> None:
    fill_folder(tmp_path, 9, [(16, 16), (16, 40)])
    data = part("folder", tmp_path, crop="random", buckets=buckets)
    whole = all_ranks(data, 12, world=1)
    before = all_ranks(data, 2, world=3)
    after = all_ranks(data, 3, world=2, seen=12)
    assert all(same(a, b) for a, b in zip(whole, before + after, strict=True))


def test_a_position_that_is_no_multiple_of_a_batch_is_resumed_to_the_sample(tmp_path: Path) -> None:
    fill_folder(tmp_path, 10)
    data = part("folder", tmp_path)
    assert keys_of(batches_of(data, 2, micro=4, samples_seen=3)) == keys_of(batches_of(data, 11, micro=1))[3:]


def test_the_order_depends_on_the_seed(tmp_path: Path) -> None:
    fill_folder(tmp_path, 10)
    orders = [keys_of(batches_of(part("folder", tmp_path, seed=seed), 2, micro=5)) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    in_order = keys_of(batches_of(part("folder", tmp_path, shuffle=False), 2, micro=5))
    assert in_order == [f"p{number:03d}.png" for number in range(10)]


def test_each_visit_says_one_of_several_captions_whoever_reads_it(tmp_path: Path) -> None:
    sayings = [f"saying {number}" for number in range(8)]
    about = json.dumps({"caption": "saying 0", "captions": sayings})
    write_shards(tmp_path, [Packed(f"s{n}", {"png": picture(n), "json": about}) for n in range(4)], 4)

    def said(seed: int, **place: int) -> list[str]:
        data = part("shards", tmp_path, seed=seed)
        return [text for batch in batches_of(data, 32 // place["micro"], **place) for text in batch.captions]

    first = said(1, micro=4)
    assert said(1, micro=1) == first
    assert said(1, micro=2, samples_seen=8)[:24] == first[8:]
    assert said(2, micro=4) != first
    assert set(first) == set(sayings)


@pytest.mark.parametrize("workers", [0, 2])
def test_buckets_never_mix_sizes_and_cover_the_epoch(tmp_path: Path, workers: int) -> None:
    fill_folder(tmp_path, 24, [(32, 32), (16, 60), (60, 16)])
    data = part("folder", tmp_path, buckets=True, num_workers=workers)
    with feed_of(data, needs(resolution=32), micro=4) as feed:
        batches = [batch.to("cpu") for batch in islice(feed, 6)]
    assert len(set(keys_of(batches))) == 24
    assert {tuple(b.pixels.shape[2:]) for b in batches if b.pixels is not None} == {
        (32, 32),
        (16, 64),
        (64, 16),
    }
    for batch in batches:
        assert batch.sizes is not None
        assert batch.pixels is not None
        assert batch.sizes[:, 4:].tolist() == [list(batch.pixels.shape[2:])] * 4


def test_sizes_are_looked_up_once(tmp_path: Path, cache: Path) -> None:
    fill_folder(tmp_path, 6)
    data = part("folder", tmp_path, buckets=True)
    batches_of(data, 1)
    [kept] = (cache / "picture-sizes").glob("*.safetensors")
    before = kept.stat().st_mtime_ns
    batches_of(data, 1)
    assert kept.stat().st_mtime_ns == before
    kept.write_bytes(b"rubbish")
    assert len(keys_of(batches_of(data, 1))) == 4


def test_the_run_s_own_generator_is_left_alone(tmp_path: Path) -> None:
    fill_folder(tmp_path, 4)
    state = torch.get_rng_state()
    for workers in (0, 1):
        batches_of(part("folder", tmp_path, num_workers=workers), 2)
    batches_of(part("synthetic"), 2)
    assert torch.equal(torch.get_rng_state(), state)


def test_workers_stop_with_the_feed(tmp_path: Path) -> None:
    fill_folder(tmp_path, 4)
    with feed_of(part("folder", tmp_path, num_workers=2)) as feed:
        next(feed)
        assert len(multiprocessing.active_children()) == 2
    assert multiprocessing.active_children() == []
    with pytest.raises(ValueError, match="the data loader is closed"):
        next(feed)


SIGNALLER = "import os, sys; [os.kill(int(pid), int(sys.argv[1])) for pid in sys.argv[2:]]"


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT])
def test_signals_for_the_whole_group_do_not_kill_the_workers(tmp_path: Path, kind: signal.Signals) -> None:
    """A scheduler that wants the machine back signals every process; the main one still has to save."""
    fill_folder(tmp_path, 4)
    with feed_of(part("folder", tmp_path, num_workers=2)) as feed:
        workers = [str(worker.pid) for worker in multiprocessing.active_children()]
        subprocess.run([sys.executable, "-c", SIGNALLER, str(int(kind)), *workers], check=True, timeout=60)
        assert len(list(islice(feed, 12))) == 12
        assert len(multiprocessing.active_children()) == len(workers) == 2


def test_a_process_that_ends_without_closing_its_feed_is_not_held_up(tmp_path: Path) -> None:
    """Its workers go when it sends them away; were they deaf to that too, it would wait for ever."""
    fill_folder(tmp_path, 4)
    with feed_of(part("folder", tmp_path, num_workers=2)):
        workers = multiprocessing.active_children()
        for worker in workers:
            worker.terminate()
            worker.join(timeout=20)
        codes = [worker.exitcode for worker in workers]
        for worker in workers:
            worker.kill()
        assert codes == [0, 0]


def test_a_worker_that_dies_says_what_may_help(tmp_path: Path) -> None:
    fill_folder(tmp_path, 4)
    with feed_of(part("folder", tmp_path, num_workers=1)) as feed:
        [worker] = multiprocessing.active_children()
        worker.kill()
        # Killed, it ends; torch would interrupt a wait with a limit to say so here.
        worker.join()
        with pytest.raises(
            DataError, match=r"data\.num_workers: a worker process died.*lower data\.num_workers"
        ):
            list(islice(feed, 50))


def test_a_full_shared_memory_ends_the_feed_instead_of_keeping_it_waiting(tmp_path: Path) -> None:
    fill_folder(tmp_path, 4)
    with feed_of(part("folder", tmp_path, num_workers=1)) as feed:
        [worker] = multiprocessing.active_children()
        assert worker.pid is not None
        # No file of this worker's, and shared memory is one, may be as large as a batch.
        resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (1024, 1024))
        with pytest.raises(
            DataError,
            match=r"data\.num_workers: there is no shared memory for batches: .*\(27\); .*larger /dev/shm",
        ) as told:
            list(islice(feed, 50))
    assert "Traceback" not in str(told.value)


def test_one_pass_gives_every_sample_once_and_ends(tmp_path: Path) -> None:
    fill_folder(tmp_path, 11)
    (tmp_path / "p004.png").write_bytes(b"")
    for workers in (0, 2):
        data = part("folder", tmp_path, num_workers=workers)
        keys: list[str] = []
        reports: list[str] = []
        for rank in range(2):
            with build_single_pass(data, needs(), rank=rank, world_size=2, micro_batch_size=3) as feed:
                keys += keys_of(list(feed))
                reports += feed.report().names
        assert keys == [f"p{number:03d}.png" for number in range(11) if number != 4]
        assert reports == ["p004.png"]


def test_an_interrupted_pass_goes_on_where_the_writer_is(tmp_path: Path) -> None:
    fill_folder(tmp_path / "in", 10, [(16, 16), (16, 60)])
    (tmp_path / "in" / "p005.png").write_bytes(b"broken")
    data, made_by = part("folder", tmp_path / "in", buckets=True), Provenance("v", "t", 16)

    def precompute(most_batches: int | None) -> list[str]:
        writer = PrecomputedWriter(tmp_path / "out", made_by, samples_per_shard=4)
        with build_single_pass(data, needs(), micro_batch_size=2, first=writer.next_position) as feed:
            batches = [batch.to("cpu") for batch in islice(feed, most_batches)]
        for batch in batches:
            assert batch.pixels is not None
            writer.add(batch, batch.pixels[:, :, ::8, ::8].repeat(1, 2, 1, 1)[:, :4])
        if most_batches is None:
            writer.finish()
        return keys_of(batches)

    first, second = precompute(3), precompute(None)
    assert set(first) | set(second) == {f"p{number:03d}.png" for number in range(10) if number != 5}
    assert first[4:] == second[: len(first) - 4]
    trained = batches_of(part("precomputed", tmp_path / "out", buckets=True), 9, micro=1)
    assert sorted(keys_of(trained)) == sorted(set(first) | set(second))


def test_facts_tell_what_the_position_is_worth(tmp_path: Path) -> None:
    fill_folder(tmp_path, 4)
    before = feed_of(part("folder", tmp_path)).facts
    assert before.num_samples == 4
    assert before.empty_text is None
    fill_folder(tmp_path, 5)
    assert feed_of(part("folder", tmp_path)).facts.identity != before.identity
    assert feed_of(part("synthetic")).facts.num_samples is None


def test_more_workers_than_cores_is_said_and_works(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill_folder(tmp_path, 4)
    workers = len(os.sched_getaffinity(0)) + 1
    assert len(keys_of(batches_of(part("folder", tmp_path, num_workers=workers), 1))) == 4
    assert f"data.num_workers={workers} is more than the {workers - 1} cores" in caplog.text


def test_settings_without_effect_are_said(caplog: pytest.LogCaptureFixture) -> None:
    feed_of(part("synthetic", "somewhere", buckets=True))
    assert "data.path=somewhere has no effect with data.kind=synthetic" in caplog.text
    assert "data.buckets=True has no effect" in caplog.text
    assert "shuffle" not in caplog.text


@pytest.mark.parametrize("kind", ["folder", "shards", "precomputed", "mds"])
def test_a_path_that_is_not_said_is_asked_for(kind: str) -> None:
    with pytest.raises(RequestError, match=rf"data\.path: data\.kind={kind} needs one, for instance"):
        feed_of(part(kind))


def test_one_pass_over_made_up_samples_is_refused() -> None:
    with pytest.raises(RequestError, match=r"data\.kind: synthetic samples are generated"):
        build_single_pass(part("synthetic"), needs(), micro_batch_size=2)


def test_a_delivery_is_pinned_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's loader asks for it where there is a GPU; there is none here, so a copy stands for pinning."""
    monkeypatch.setattr(torch.Tensor, "pin_memory", torch.Tensor.clone)
    [batch] = batches_of(part("synthetic_latents"), 1)
    pinned = Delivery(batch).pin_memory().batch
    assert pinned is not None
    assert same(pinned, batch)
    for name in ("latents", "context", "sizes"):
        assert getattr(pinned, name) is not getattr(batch, name)
    assert Delivery(None).pin_memory().batch is None


def test_a_batch_moves_as_one() -> None:
    [batch] = batches_of(part("synthetic_latents"), 1)
    moved = batch.to("meta")
    assert moved.latents is not None
    assert moved.latents.device.type == "meta"
    assert moved.pixels is None
    assert (moved.captions, len(moved)) == (batch.captions, 4)
