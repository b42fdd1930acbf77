"""Names that requests may use; a test checks that each is implemented."""

SAMPLERS = (
    "euler",
    "euler_ancestral",
    "heun",
    "dpm_2",
    "dpm_2_ancestral",
    "lms",
    "dpmpp_2s_ancestral",
    "dpmpp_sde",
    "dpmpp_2m",
    "dpmpp_2m_sde",
    "dpmpp_3m_sde",
    "ddim",
    "ddpm",
    "pndm",
    "uni_pc",
    "lcm",
)

SAMPLERS_WITH_ETA = (
    "euler_ancestral",
    "dpm_2_ancestral",
    "dpmpp_2s_ancestral",
    "dpmpp_sde",
    "dpmpp_2m_sde",
    "dpmpp_3m_sde",
    "ddim",
)
"""Samplers whose noise per step `eta` sets."""

A1111_SCHEDULES = (
    "a1111_uniform",
    "a1111_karras",
    "a1111_exponential",
    "a1111_sgm_uniform",
    "a1111_kl_optimal",
    "a1111_align_your_steps",
    "a1111_simple",
    "a1111_ddim",
    "a1111_beta",
)
"""The noise levels of A1111's web UI, image-to-image included."""

SCHEDULES = (
    "normal",
    "karras",
    "exponential",
    "sgm_uniform",
    "simple",
    "ddim_uniform",
    "beta",
    "linspace",
    "leading",
    "trailing",
    *A1111_SCHEDULES,
)
"""Noise levels as ComfyUI computes them, the three timestep spacings of diffusers, and A1111's own."""

RANDOM_MODEL = "random:"
"""Prefix of models with seeded random weights: `random:sd15:7`."""

PRESETS = ("baseline", "fast", "max-throughput", "int8", "int8-static", "fp8", "low-memory", "cached")

DEFAULT_PRESET = "fast"
"""Preset of requests that name none."""

LOSSY_PRESETS = ("int8", "int8-static", "fp8", "cached")
"""Presets whose images differ by more than rounding."""

PRECISIONS = ("fp32", "fp16", "bf16")

IMAGE_FORMATS = ("png", "webp", "jpeg")
