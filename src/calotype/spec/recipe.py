"""What a training run is: a model, its data, an objective, an optimizer and how to run them.

Frozen and strict like a request; what its parts have to agree on is checked here. Knows nothing of torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import ValidationError, model_validator

from calotype.core.errors import Problem, RequestError
from calotype.spec.recipe_sections import (
    PRECOMPUTED_FORMATS,
    CheckpointConfig,
    DataConfig,
    EmaConfig,
    LoggingConfig,
    LoraConfig,
    ModelConfig,
    ObjectiveConfig,
    OptimizerConfig,
    ProfileConfig,
    RecipeSection,
    TextualInversionConfig,
    TrainerConfig,
    VaeConfig,
    ValidationConfig,
)
from calotype.spec.validation_errors import problems_of


class Recipe(RecipeSection):
    """A whole training run."""

    name: str = "run"
    model: ModelConfig = ModelConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    ema: EmaConfig = EmaConfig()
    data: DataConfig = DataConfig()
    validation: ValidationConfig = ValidationConfig()
    trainer: TrainerConfig = TrainerConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    logging: LoggingConfig = LoggingConfig()
    profile: ProfileConfig = ProfileConfig()
    lora: LoraConfig = LoraConfig()
    textual_inversion: TextualInversionConfig = TextualInversionConfig()
    vae: VaeConfig = VaeConfig()

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Build from plain values; raises RequestError listing every problem."""
        try:
            return cls.model_validate(with_tuples(values))
        except ValidationError as error:
            problems = problems_of(cls, error)
            general = [Problem("", str(d["ctx"]["error"])) for d in error.errors() if not d["loc"]]
            raise RequestError([*problems, *general]) from None

    @property
    def num_processes(self) -> int:
        return self.trainer.devices * self.trainer.nodes

    @property
    def trains_text_encoders(self) -> bool:
        """In full, or by a LoRA."""
        kind = self.model.train
        return kind == "unet_and_text" or (kind == "lora" and self.lora.text_encoder)

    @property
    def accumulation(self) -> int:
        """Micro-batches each device runs before an update."""
        return self.model.global_batch_size // (self.model.micro_batch_size * self.num_processes)

    @model_validator(mode="after")
    def _batches_divide(self) -> Self:
        micro, total = self.model.micro_batch_size, self.model.global_batch_size
        at_once = micro * self.num_processes
        if total % at_once:
            below = max(total // at_once, 1) * at_once
            product = f"{micro} × {self.trainer.devices} × {self.trainer.nodes} = {at_once}"
            raise ValueError(
                f"model.global_batch_size: {total} is not a multiple of micro batch × devices × nodes = "
                f"{product}; use {below} or {below + at_once}"
            )
        return self

    @model_validator(mode="after")
    def _metric_is_there(self) -> Self:
        if self.checkpoint.metric == "validation_loss" and self.validation.data is None:
            fix = "set validation.data.kind and validation.data.path"
            raise ValueError(f"checkpoint.metric: validation_loss needs samples; {fix}")
        return self

    @model_validator(mode="after")
    def _width_is_free(self) -> Self:
        part = self.model
        if part.width > 1 and part.weights == "pretrained":
            rule = f"{part.base} has its width already, and {part.width} times that needs new weights"
            raise ValueError(f"model.width: {rule}; set model.weights=random, or leave model.width out")
        return self

    @model_validator(mode="after")
    def _what_is_asked_for_can_be_seen(self) -> Self:
        logging, profile, trainer = self.logging, self.profile, self.trainer
        if logging.sample_every_steps and not logging.sample_prompts and self.model.train != "vae":
            raise ValueError("logging.sample_prompts: is empty, so there would be no pictures; name some")
        if profile.enabled and profile.start_step > trainer.max_steps:
            rule = f"{profile.start_step} is after the last step, trainer.max_steps={trainer.max_steps}"
            raise ValueError(f"profile.start_step: {rule}; start earlier")
        if profile.enabled and not trainer.elastic and min(profile.ranks, default=0) >= self.num_processes:
            rule = f"{list(profile.ranks)} are none of the run's, which are numbered from 0"
            raise ValueError(f"profile.ranks: {rule} to {self.num_processes - 1}")
        return self

    @model_validator(mode="after")
    def _data_holds_what_is_trained_on(self) -> Self:
        """What is trained has to see what it reads: encoded beforehand, nothing could be learned from it."""
        settings = {
            "model.train=vae": ("pictures", self.model.train == "vae"),
            "model.train=unet_and_text": ("captions", self.model.train == "unet_and_text"),
            "lora.text_encoder=true": ("captions", self.model.train == "lora" and self.lora.text_encoder),
        }
        for setting, (needed, applies) in settings.items():
            if applies and self.data.kind in PRECOMPUTED_FORMATS:
                rule = f"{setting} needs {needed}, and {self.data.kind} brings only what was made of them"
                raise ValueError(f"data.kind: {rule}; use folder, shards, mds or synthetic")
        held_out = self.validation.data
        # Captions are kept beside what was made of them, and being looked at is not being trained.
        if self.model.train == "vae" and held_out and held_out.kind in PRECOMPUTED_FORMATS:
            rule = f"model.train=vae needs pictures, and {held_out.kind} brings only what was made of them"
            raise ValueError(f"validation.data.kind: {rule}; use folder, shards, mds or synthetic")
        if self.model.train == "vae" and self.data.keep_latents:
            raise ValueError("data.keep_latents: model.train=vae trains what makes them; leave it out")
        return self

    @model_validator(mode="after")
    def _can_be_split(self) -> Self:
        if self.trainer.strategy != "fsdp":
            return self
        problems = {
            "model.train": (self.model.train != "unet", "only a whole UNet is worth splitting; use ddp"),
            "model.channels_last": (self.model.channels_last, "weights have to lie row by row; leave it out"),
            "model.cuda_graphs": (self.model.cuda_graphs, "weights have no fixed place; leave it out"),
            "optimizer.name": (
                self.optimizer.name != "adamw",
                "quantised moments cannot be split; use adamw",
            ),
            "trainer.overlap": (not self.trainer.overlap, "gradients always travel early; leave it out"),
        }
        found = [f"{name}: {rule}" for name, (wrong, rule) in problems.items() if wrong]
        if found:
            raise ValueError(f"trainer.strategy=fsdp does not go with {'; '.join(found)}")
        return self

    @model_validator(mode="after")
    def _one_pass_is_possible(self) -> Self:
        if not self.optimizer.one_pass:
            return self
        problems = {
            "optimizer.name=adamw8bit": self.optimizer.name != "adamw",
            "optimizer.fused=false": not self.optimizer.fused,
            "model.low_precision_weights=true": self.model.low_precision_weights,
            "model.precision=fp16": self.model.precision == "fp16",
            "trainer.strategy=fsdp": self.trainer.strategy == "fsdp",
            "ema.device=cpu": self.model.use_ema and self.ema.device == "cpu",
        }
        found = [name for name, wrong in problems.items() if wrong]
        if found:
            rule = f"it needs whole weights in fp32 on one device, not {', '.join(found)}"
            raise ValueError(f"optimizer.one_pass: {rule}; leave it out")
        return self


def with_tuples(value: object) -> Any:
    """Lists as tuples, however deep: what is frozen holds no lists."""
    if isinstance(value, list | tuple):
        return tuple(with_tuples(item) for item in value)
    if isinstance(value, Mapping):
        return {key: with_tuples(item) for key, item in value.items()}
    return value
