"""Foundations of all other packages, without torch: errors, paths, hardware, progress."""
