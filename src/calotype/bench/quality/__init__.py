"""Measures the quality of a model's emoji with a classifier trained on the real artwork.

Reading order: `dataset` (the real images) and `duplicates` (identical ones); `classifier_model`,
`augmentations`, `classifier_train`, `classifier`; `background_check` and `score` (scores of an image);
`classifier_eval` and `classifier_build`; `prompts`, `generate` and `image_metrics` (a model's images and
their metrics); `contact_sheets` and `report` (output); then `run`, which does it all.
"""
