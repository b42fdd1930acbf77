"""Renders measurements as one self-contained HTML page and as Markdown.

Reading order: `load` (files), `aggregate` (combines rounds of a point), `document` (the parts of a report),
`series` (points that form a line), `sections/` (one file per section), `build` (assembles the report),
`plots/` (numbers to SVG), then `render_html`, `render_markdown` and `write` (report to files). The package
loads without torch.
"""
