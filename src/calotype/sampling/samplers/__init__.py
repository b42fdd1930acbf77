"""The samplers by name, one file each. Their docstrings cite the papers; `protocol` defines the interface.

To add one, add a file, a line here, and its name in `calotype.spec.constants`.
"""

from calotype.sampling.protocol import Sampler
from calotype.sampling.samplers.ddim import ddim
from calotype.sampling.samplers.ddpm import ddpm
from calotype.sampling.samplers.dpm_2 import dpm_2
from calotype.sampling.samplers.dpm_2_ancestral import dpm_2_ancestral
from calotype.sampling.samplers.dpmpp_2m import dpmpp_2m
from calotype.sampling.samplers.dpmpp_2m_sde import dpmpp_2m_sde
from calotype.sampling.samplers.dpmpp_2s_ancestral import dpmpp_2s_ancestral
from calotype.sampling.samplers.dpmpp_3m_sde import dpmpp_3m_sde
from calotype.sampling.samplers.dpmpp_sde import dpmpp_sde
from calotype.sampling.samplers.euler import euler
from calotype.sampling.samplers.euler_ancestral import euler_ancestral
from calotype.sampling.samplers.heun import heun
from calotype.sampling.samplers.lcm import lcm
from calotype.sampling.samplers.lms import lms
from calotype.sampling.samplers.pndm import pndm
from calotype.sampling.samplers.uni_pc import uni_pc

SAMPLERS: dict[str, Sampler] = {
    "euler": euler,
    "euler_ancestral": euler_ancestral,
    "heun": heun,
    "dpm_2": dpm_2,
    "dpm_2_ancestral": dpm_2_ancestral,
    "lms": lms,
    "dpmpp_2s_ancestral": dpmpp_2s_ancestral,
    "dpmpp_sde": dpmpp_sde,
    "dpmpp_2m": dpmpp_2m,
    "dpmpp_2m_sde": dpmpp_2m_sde,
    "dpmpp_3m_sde": dpmpp_3m_sde,
    "ddim": ddim,
    "ddpm": ddpm,
    "pndm": pndm,
    "uni_pc": uni_pc,
    "lcm": lcm,
}
