"""Draws SVG plots: `canvas` (elements and text), `scales`, `line_chart`, `bar_chart`, `roofline`.

Style sheets assign colors by class, so that one drawing works in light mode, dark mode and on paper.
"""
