/** The samplers and schedules every server knows (`spec/constants.py`), for a form that cannot wait. */

export const SAMPLERS = [
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
];

export const SCHEDULES = [
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
];
