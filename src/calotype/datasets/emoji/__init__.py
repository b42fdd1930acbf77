"""Builds the dataset of the embedded model: rendered and captioned emoji artwork under open licenses.

Reading order: `npm` (source packages); `codepoints`, `artwork` and `emojibase` (their content); `hashing`,
`backgrounds`, `captions` and `split` (the images to build); `render`, `bpe`, `manifest`; then `build`, which
does it all.
"""
