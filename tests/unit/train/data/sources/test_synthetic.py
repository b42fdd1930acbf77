"""Made-up data: the same for the same place in the run, different everywhere else, and never zeros."""

import torch

from tests.unit.train.data.specimens import batches_of, feed_of, needs, part, same


def test_pictures_are_reproducible_and_fill_the_range() -> None:
    first, second = batches_of(part("synthetic", seed=3), 2)
    assert first.pixels is not None
    assert second.pixels is not None
    assert first.pixels.shape == (4, 3, 16, 16)
    assert first.pixels.dtype == torch.float32
    assert -1 <= first.pixels.min() < -0.95
    assert 0.95 < first.pixels.max() <= 1
    assert not torch.equal(first.pixels, second.pixels)
    assert first.pixels.flatten(1).unique(dim=0).shape[0] == 4
    assert first.sizes is not None
    assert first.sizes.tolist() == [[16, 16, 0, 0, 16, 16]] * 4
    assert all(caption.startswith("a ") for caption in first.captions)
    assert len({*first.captions, *second.captions}) > 4
    [again, _] = batches_of(part("synthetic", seed=3), 2)
    assert same(first, again)
    [other] = batches_of(part("synthetic", seed=4), 1)
    assert not torch.equal(first.pixels, other.pixels)  # type: ignore[arg-type]  # it is there, as in the first


def test_latents_come_with_embeddings() -> None:
    with feed_of(part("synthetic_latents"), needs(pooled_width=7)) as feed:
        batch = next(feed)
        empty = feed.facts.empty_text
    assert batch.pixels is None
    for tensor, shape in ((batch.latents, (4, 4, 2, 2)), (batch.context, (4, 5, 6)), (batch.pooled, (4, 7))):
        assert tensor is not None
        assert tensor.shape == shape
        assert tensor.abs().min() > 0
    assert empty is not None
    assert empty.context.shape == (5, 6)
    assert empty.pooled is not None
    assert empty.pooled.shape == (7,)


def test_a_sample_depends_on_its_position_alone() -> None:
    """Neither ranks nor the micro-batch size nor where the run was resumed change it."""
    data = part("synthetic_latents", seed=1)
    whole = torch.cat([b.latents for b in batches_of(data, 3, micro=8) if b.latents is not None])
    two_ranks = [batches_of(data, 3, micro=4, rank=rank, world_size=2) for rank in range(2)]
    in_turn = [batch for pair in zip(*two_ranks, strict=True) for batch in pair]
    assert torch.equal(whole, torch.cat([b.latents for b in in_turn if b.latents is not None]))
    [resumed] = batches_of(data, 1, micro=8, samples_seen=16)
    assert resumed.latents is not None
    assert torch.equal(whole[16:], resumed.latents)
