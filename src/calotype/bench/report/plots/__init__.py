"""Numbers to SVG: `canvas` (elements and text), `scales`, `line_chart`, `bar_chart`, `roofline`.

Colours come from style sheets by class, so that one drawing serves light, dark and paper. Knows nothing of
measurements.
"""
