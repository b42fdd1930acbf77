"""The pictures the embedded model is trained on: emoji artwork under open licences, rendered and captioned.

Reading order: `packages` (where it comes from); `sequences`, `artwork` and `names` (what is in it); `lots`,
`backgrounds`, `captions` and `plan` (what is made of it); `rendering`, `vocabulary`, `account`; then `build`,
which does it all.
"""
