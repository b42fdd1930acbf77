"""Measurements as something people want to read: one HTML page that needs nothing else, and Markdown.

Reading order: `reading` (files), `points` (rounds of a point as one), `content` (what a report is made of),
`environment`, `headline`, `lines`, `figures`, `ablation`, `arithmetic`, `tables`, `pictures`, `compose` (all
of it together), `plots/` (numbers to SVG), then `page`, `markdown` and `writing` (content to files). Loads
without torch.
"""
