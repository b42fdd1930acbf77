"""Noise, sigma schedules and samplers: everything between a seed and a finished latent except the model.

Reading order: `protocol` (a sampler is a generator), `samplers/euler`, `api` (running a sampler),
`noise_schedule`, `sigma_schedules`, `a1111_schedules`, `run_sigmas`, `parameterization`, `noise`.
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
