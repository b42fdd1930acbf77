"""Tensor names and shapes of the two worlds a model lives in.

"Diffusers" is one folder per part; "original" is the single file that CompVis (LDM) and Stability (SGM)
trained with and that sharing sites ship. Every rule here is a bijection, so one table converts both ways and
nothing is lost. Reads no file.
"""
