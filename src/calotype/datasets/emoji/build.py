"""Builds the emoji dataset: renders, captions, splits, and writes shards, vocabulary and manifest.

The folder appears atomically when it is complete. The same packages and settings give the same bytes for any
number of workers, as long as the versions in `made_with` are the same.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from calotype.core.progress import Progress, Silent
from calotype.datasets.emoji import bpe
from calotype.datasets.emoji.artwork import STYLES, Style, drawings
from calotype.datasets.emoji.backgrounds import BACKGROUNDS
from calotype.datasets.emoji.captions import captions
from calotype.datasets.emoji.emojibase import Emoji, read_emoji, read_words
from calotype.datasets.emoji.manifest import Built, Manifest, already_built, file_sums
from calotype.datasets.emoji.npm import EMOJIBASE, Package, Unpacked, fetch_package
from calotype.datasets.emoji.parallel_map import ParallelMap, process_pool
from calotype.datasets.emoji.render import ENCODING, check_renderer, compose, render
from calotype.datasets.emoji.split import Amounts, Drawn, Picture, plan_images
from calotype.models.tokenizer import write_tokenizer
from calotype.train.data.sources.webdataset_writer import Packed, write_shards

SAMPLES_PER_SHARD = 4096
TRAIN, HELD_OUT = "train", "heldout"


@dataclass(frozen=True)
class Ingredients:
    """The verified packages."""

    styles: tuple[tuple[Style, Unpacked], ...]
    names: Unpacked

    @property
    def packages(self) -> list[Package]:
        return [self.names.package, *(unpacked.package for _, unpacked in self.styles)]


def gather(
    *,
    folder: Path | None = None,
    offline: bool = False,
    styles: Sequence[Style] = STYLES,
    names: Package = EMOJIBASE,
) -> Ingredients:
    """Get every package from `folder`, the cache or the registry."""
    checked = tuple((style, fetch_package(style.package, folder=folder, offline=offline)) for style in styles)
    return Ingredients(checked, fetch_package(names, folder=folder, offline=offline))


def build(
    ingredients: Ingredients,
    destination: Path,
    *,
    amounts: Amounts | None = None,
    num_workers: int = 1,
    progress: Progress | None = None,
) -> Built:
    """Build the dataset in `destination`; an identical existing dataset is verified and kept."""
    amounts = amounts or Amounts()
    made_with = {**check_renderer(), "tokenizers": version("tokenizers")}
    account = Manifest(ingredients.packages, amounts, made_with)
    if destination.exists():
        return already_built(destination, account)
    destination.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=destination.parent, prefix=f".{destination.name[:100]}."))
    try:
        built = _fill(partial, ingredients, account, num_workers, progress or Silent())
        partial.chmod(0o755)
        partial.rename(destination)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return built.at(destination)


def _fill(
    folder: Path, ingredients: Ingredients, account: Manifest, num_workers: int, progress: Progress
) -> Built:
    emoji = read_emoji(ingredients.names)
    with process_pool(num_workers) as share_out:
        art, drawn = _rendered(emoji, ingredients, share_out, progress)
        pictures = plan_images(drawn, account.amounts)
        progress.start("writing images", len(pictures))
        for split in (TRAIN, HELD_OUT):
            chosen = [picture for picture in pictures if picture.held_out == (split == HELD_OUT)]
            samples = _packed(chosen, split, art, share_out, progress)
            write_shards(folder / split, samples, SAMPLES_PER_SHARD, stem=split)
    progress.start("training the vocabulary", 1)
    said = {text: None for picture in pictures for text in _captions(picture)}
    tokenizer = bpe.learn_merges([*said, *read_words(ingredients.names)])
    write_tokenizer(folder / "tokenizer", tokenizer)
    longest = bpe.longest(said, tokenizer)
    progress.advance()
    return account.write(folder, pictures, len(tokenizer["vocabulary"]["vocab"]), longest, file_sums(folder))


def _rendered(
    emoji: Sequence[Emoji], ingredients: Ingredients, share_out: ParallelMap, progress: Progress
) -> tuple[Mapping[tuple[str, str], bytes], list[Drawn]]:
    """Render every drawing as a transparent image by sequence and style, with its visible backgrounds."""
    wanted = [
        (one, style, drawing)
        for style, unpacked in ingredients.styles
        for drawing_of in (drawings(unpacked),)
        for one in emoji
        if (drawing := drawing_of.get(one.hexcode)) is not None
    ]
    progress.start("rendering", len(wanted))
    art, drawn = {}, []
    work = ((drawing, style.frame) for _, style, drawing in wanted)
    for (one, style, _), rendered in zip(wanted, share_out(render, work), strict=True):
        art[one.hexcode, style.name] = rendered.png
        drawn.append(Drawn(one, style, rendered.seen_on))
        progress.advance()
    return art, drawn


def _packed(
    pictures: Sequence[Picture],
    split: str,
    art: Mapping[tuple[str, str], bytes],
    share_out: ParallelMap,
    progress: Progress,
) -> Iterator[Packed]:
    work = (
        (art[picture.emoji.hexcode, picture.style.name], BACKGROUNDS[picture.background])
        for picture in pictures
    )
    for picture, file in zip(pictures, share_out(compose, work), strict=True):
        yield Packed(picture.key, {ENCODING: file, "json": _described(picture, split)})
        progress.advance()


def _described(picture: Picture, split: str) -> str:
    emoji, said = picture.emoji, _captions(picture)
    values = {
        "background": picture.background,
        "background_rgb": BACKGROUNDS[picture.background],
        "base": emoji.base,
        "caption": said[0],
        "captions": said,
        "hexcode": emoji.hexcode,
        "kind": emoji.kind,
        "name": emoji.name,
        "split": split,
        "style": picture.style.name,
        "tone": emoji.tone,
    }
    return json.dumps(values, ensure_ascii=False)


def _captions(picture: Picture) -> list[str]:
    return captions(picture.emoji, picture.style, picture.background)
