"""Maps tensor names and shapes between the diffusers layout and the original single-file layout.

"Diffusers" is one folder per part; "original" is the single file that CompVis (LDM) and Stability (SGM)
trained with and that model sites distribute. Every rule is a bijection, so one table converts both ways
without loss.
"""
