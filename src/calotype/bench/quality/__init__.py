"""How good a model's emoji are, told by a recogniser that learned the real artwork.

Reading order: `artwork` (the real pictures) and `twins` (which nobody could tell apart); `network`, `faults`,
`learning`, `recogniser` (who judges); `colours`, `judge` (what is said of a picture); `exam`, `schooling`
(how the judge is made and tested); `asking`, `making`, `measures` (a model's pictures and their numbers);
`sheets`, `report` (what is shown of them); then `quality`, which does it all.
"""
