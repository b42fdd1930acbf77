"""The parts of a training recipe: what is said of the model, the data, the optimizer and so on.

The names follow the benchmarks people already run (`model.micro_batch_size`, `trainer.devices`), so that
their command lines carry over. Knows nothing of torch, nor of what parts have to agree on.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Count = Annotated[int, Field(ge=1, le=10**9)]
Amount = Annotated[int, Field(ge=0, le=10**9)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Momentum = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]

PRECOMPUTED_FORMATS = ("precomputed", "synthetic_latents")
"""Kinds of data that bring latents and text embeddings along."""
SYNTHETIC_KINDS = ("synthetic", "synthetic_latents")
"""Kinds of data that are made up on the device."""


class RecipeSection(BaseModel):
    """Of a recipe: frozen and strict, each key with what it means below it."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)


class ModelConfig(RecipeSection):
    """What is trained, and in which numbers."""

    base: str = "emoji"
    """A catalogue name, file, folder or hub id, as for `calotype generate`."""
    weights: Literal["random", "pretrained"] = "random"
    """Start from seeded random numbers, or from the weights `base` leads to. Has to be set for a LoRA, a word
    or text encoders, and for images, which an autoencoder of random numbers would encode."""
    vae: str | None = None
    """An autoencoder in place of the model's own: a file, a diffusers folder with its scale, or a name in the
    model folder, as for `calotype generate --vae`."""
    width: Annotated[int, Field(ge=1, le=16)] = 1
    """UNet and text encoders so many times as wide as the catalogue has them; starts from random numbers."""
    train: Literal["unet", "unet_and_text", "lora", "textual_inversion", "vae"] = "unet"
    """The whole UNet, alone or with the whole text encoders; small updates of it; a word; the autoencoder."""
    micro_batch_size: Count = 8
    """Samples one device holds at once."""
    global_batch_size: Count = 8
    """Samples between two updates, over all devices."""
    resolution: Annotated[int, Field(ge=16, le=4096, multiple_of=8)] | None = None
    """Side of the pictures; the model's own if not said."""
    precision: Literal["fp32", "bf16", "fp16"] = "bf16"
    """Of the arithmetic; fp16 scales the loss."""
    low_precision_weights: bool = False
    """Keep the weights themselves in `precision`, not only the arithmetic."""
    attention: Literal["auto", "flash", "efficient", "math", "cudnn"] = "auto"
    channels_last: bool = False
    compile: bool = False
    """Compile the UNet and the VAE's encoder with inductor."""
    cuda_graphs: bool = False
    """Replay the compiled step from a CUDA graph."""
    tune_convolutions: bool = False
    """Have cuDNN try its kernels on each shape of convolution and keep the fastest (`cudnn.benchmark`)."""
    encode_aside: bool = False
    """Encode the next pictures and captions while the GPU updates the weights; takes memory of its own."""
    gradient_checkpointing: bool = False
    """Compute activations again in the backward pass: less memory, about a third more time."""
    use_ema: bool = True


class ObjectiveConfig(RecipeSection):
    """What the network is asked for."""

    prediction_type: Literal["epsilon", "v_prediction"] | None = None
    """As the model was trained if not said."""
    snr_gamma: Positive | None = None
    """Min-SNR weighting (arXiv:2303.09556); 5 is usual."""
    offset_noise: NotNegative = 0.0
    caption_dropout: Share = 0.1
    """Share of captions replaced by the empty one, so that guidance has something to subtract."""


class OptimizerConfig(RecipeSection):
    name: Literal["adamw", "adamw8bit"] = "adamw"
    learning_rate: Positive = 1e-4
    betas: tuple[Momentum, Momentum] = (0.9, 0.999)
    eps: Positive = 1e-8
    weight_decay: NotNegative = 0.01
    fused: bool = True
    """One kernel for the whole update."""
    one_pass: bool = False
    """And for clipping and the running average besides: a quarter less to carry to and from memory."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup_steps: Amount = 0
    final_share: Share = 0.0
    """Share of the learning rate that is left at the last step."""
    gradient_clip: NotNegative = 1.0
    """Largest norm of the gradient; 0 leaves it alone."""


class EmaConfig(RecipeSection):
    """The running average of the weights, which is what is exported."""

    decay: Share = 0.9999
    every_steps: Count = 1
    warmup: bool = True
    """Follow closely at first: decay is at most (1 + steps) / (10 + steps)."""
    device: Literal["same", "cpu"] = "same"


class DataConfig(RecipeSection):
    kind: Literal["synthetic", "synthetic_latents", "folder", "shards", "precomputed", "mds"] = "synthetic"
    path: str | None = None
    """Folder of pictures and captions; shards as `name-{000..099}.tar`, local, http(s), s3, gs or az; with
    `cache_gb` the address of their index.json."""
    cache_gb: Positive | None = None
    """Shards far away are fetched when they are wanted, and each node's disk keeps at most so many gigabytes
    of them. Without it all of them are fetched before the run begins."""
    shuffle_shards: Count = 16
    """With `cache_gb`: so many shards are mixed with each other at a time."""
    lanes: Count = 1
    """With `cache_gb`: micro-batches take this many separate sets of shards in turn. A node needs those of
    its processes' turns only, if the number of processes divides it. Another number is another order."""
    num_workers: Annotated[int, Field(ge=0, le=256)] = 2
    shuffle: bool = True
    seed: Amount = 0
    crop: Literal["centre", "random"] = "centre"
    """Which part of a picture is kept when its sides do not fit."""
    random_flip: bool = False
    default_caption: str | None = None
    """What to say of pictures that have no caption; without it they count as corrupt."""
    buckets: bool = False
    """Group pictures by aspect ratio and crop each to the nearest of its group."""
    most_corrupt: Amount = 1000
    """Stop when more samples than this could not be read."""
    in_memory: bool = False
    """Decode every picture once, at the start, and keep it as bytes in memory; on the GPU if that takes at
    most a tenth of what is free there. For small sets: the batches are the same and cost next to nothing."""
    keep_latents: bool = False
    """With in_memory: encode every picture once, at the start, and keep what the frozen autoencoder says of
    it on the device. Training draws latents from the same distributions, and never encodes again."""

    @model_validator(mode="after")
    def _kept_pictures_have_one_crop(self) -> Self:
        for name, varies in (("crop=random", self.crop == "random"), ("buckets=true", self.buckets)):
            if self.in_memory and varies:
                rule = "in_memory keeps every picture at one size and crop, which"
                raise ValueError(f"{rule} {name} changes; leave out one of the two")
        if self.keep_latents and not self.in_memory:
            raise ValueError("keep_latents encodes what in_memory has decoded; set in_memory=true too")
        if self.keep_latents and self.random_flip:
            raise ValueError("keep_latents encodes no mirrored pictures; leave out random_flip")
        return self


class ValidationConfig(RecipeSection):
    """The loss on samples that are not trained on, with the averaged weights; the same draws each time."""

    data: DataConfig | None = None
    """Where they come from, with the keys of `data`; without it nothing is validated."""
    every_steps: Count = 1000
    """Checkpoints that are judged by it are validated too."""
    num_samples: Count = 256
    """Over all processes; rounded up to whole micro-batches of each."""

    @model_validator(mode="after")
    def _reads_what_it_needs(self) -> Self:
        if self.data and self.data.in_memory:
            raise ValueError("data.in_memory would decode all samples for a few each time; leave it out")
        return self


class TrainerConfig(RecipeSection):
    max_steps: Count = 1000
    devices: Count = 1
    nodes: Count = 1
    strategy: Literal["auto", "ddp", "fsdp"] = "auto"
    """How processes share the work: `ddp` exchanges gradients, `fsdp` splits weights, moments and averages
    too, `auto` is ddp for several processes and nothing for one."""
    elastic: bool = False
    """Take as many processes as torchrun started, whatever `devices` and `nodes` wish for; the global batch
    stays what it is."""
    peer_timeout_s: Positive = 600.0
    """How long a process waits in an exchange for the others before it says that they are lost and ends, so
    that torchrun starts it again. Writing a checkpoint may take three times as long."""
    seed: Amount = 0
    gradient_as_bucket_view: bool = True
    overlap: bool = True
    """Send gradients between processes while the backward pass is still running."""
    log_every_steps: Count = 10
    ceiling_tflops: Positive | None = None
    """The most one device reaches, to tell MFU from; measured on a GPU at the start if not said."""
    on_non_finite: Literal["stop", "skip"] = "stop"
    most_skips: Amount = 10
    """With `skip`: how many updates may be left out before the run stops."""


class CheckpointConfig(RecipeSection):
    folder: str = "runs/{name}"
    every_steps: Count = 1000
    keep_last: Count = 3
    keep_best: Amount = 0
    """So many of the lowest `metric` stay beside the last."""
    metric: Literal["train_loss", "validation_loss"] | None = None
    """What a checkpoint is judged by; the validation loss where there is one, if not said.

    `train_loss` is a running mean over about 200 steps. One metric is not compared with another.
    """
    asynchronous: bool = True
    resume: bool = True
    """Go on from the newest complete checkpoint in the folder, if there is one."""


class LoggingConfig(RecipeSection):
    tensorboard: bool = False
    wandb: Literal["off", "offline", "online"] = "off"
    """Weights & Biases: into the run's folder alone (`true` means that too), or to its server as well."""
    wandb_project: str = "calotype"
    sample_every_steps: Amount = 0
    """Pictures from fixed prompts every so many steps; 0 makes none."""
    sample_prompts: tuple[str, ...] = ()
    sample_steps: Count = 20

    @field_validator("wandb", mode="before")
    @classmethod
    def _as_yaml_reads_it(cls, value: object) -> object:
        """YAML takes a bare off for false."""
        return {False: "off", True: "offline"}[value] if isinstance(value, bool) else value


class ProfileConfig(RecipeSection):
    """A window of steps to look into."""

    enabled: bool = False
    start_step: Count = 10
    end_step: Count = 12
    ranks: tuple[Amount, ...] = (0,)
    gen_shape: bool = False
    """Note the shapes of every operation's inputs."""

    @model_validator(mode="after")
    def _starts_before_it_ends(self) -> Self:
        if self.start_step > self.end_step:
            raise ValueError(f"start_step {self.start_step} is after end_step {self.end_step}; swap them")
        return self


class LoraConfig(RecipeSection):
    rank: Count = 16
    alpha: Positive | None = None
    """As the rank if not said."""
    targets: Annotated[tuple[str, ...], Field(min_length=1)] = ("to_q", "to_k", "to_v", "to_out.0")
    """Endings of the names of the layers that get one."""
    text_encoder: bool = False
    """Train updates of the text encoders' attention too; captions have to be encoded in the run then."""
    dialect: Literal["diffusers", "kohya"] = "diffusers"


class TextualInversionConfig(RecipeSection):
    word: str = "learned"
    """What the learned word will be called; `embedding:NAME` in prompts. Captions that do not name it become
    "a photo of NAME"."""
    num_vectors: Annotated[int, Field(ge=1, le=75)] = 1
    initial_word: str = "object"


class VaeConfig(RecipeSection):
    """How an autoencoder's pictures are judged. Every term is a mean over the numbers of a picture."""

    reconstruction: Literal["l1", "mse", "charbonnier"] = "l1"
    """Error of a number: its size, its square, or √(error² + 0.001²)."""
    kl_weight: NotNegative = 1e-6
    """Of the divergence from the unit normal, summed over a latent and divided by the numbers of the picture
    (3 × height × width), as in latent diffusion's own training: 1e-6 means the same at any size."""
    gradient_weight: NotNegative = 0.0
    """Of the error of the differences between neighbours, at full, half and quarter size: for sharp edges."""
    ssim_weight: NotNegative = 0.0
    """Of 1 − structural similarity (Wang et al. 2004), the mean over full, half and quarter size."""
    frequency_weight: NotNegative = 0.0
    """Of the size of the error's Fourier coefficients, which counts fine detail as much as large areas."""
