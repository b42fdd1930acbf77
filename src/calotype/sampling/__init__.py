"""Noise, sigma schedules and samplers: everything between a seed and a finished latent except the model.

Reading order: `query` (a sampler is a generator), `samplers/euler`, `sampler` (driving one),
`training_schedule`, `schedules`, `a1111_schedules`, `sigmas_of_run`, `prediction`, `noise`. Knows nothing of
models, prompts or guidance.
"""

from calotype.sampling.api import begin, sample
from calotype.sampling.noise import NoiseStream
from calotype.sampling.noise_schedule import TrainingSchedule, training_schedule
from calotype.sampling.protocol import DenoiseQuery, SamplerGenerator
from calotype.sampling.run_sigmas import SCHEDULES, options_of_run, sigmas_of_run, start_of_run
from calotype.sampling.samplers import SAMPLERS

__all__ = [
    "SAMPLERS",
    "SCHEDULES",
    "DenoiseQuery",
    "NoiseStream",
    "SamplerGenerator",
    "TrainingSchedule",
    "begin",
    "options_of_run",
    "sample",
    "sigmas_of_run",
    "start_of_run",
    "training_schedule",
]
