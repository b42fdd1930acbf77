"""Normalizes emoji sequences of code points and groups their variants.

A sequence is written as hexadecimal numbers in upper case with dashes between, without variation selectors,
which say how to draw and not what.
"""

_SELECTOR = "FE0F"
_JOINER = "200D"
_TONES = frozenset(("1F3FB", "1F3FC", "1F3FD", "1F3FE", "1F3FF"))
_GENDER_SIGNS = ("2640", "2642")
_PERSON, _CHILD, _OLDER_PERSON = "1F9D1", "1F9D2", "1F9D3"
_NEUTRAL = {
    **dict.fromkeys(("1F468", "1F469"), _PERSON),
    **dict.fromkeys(("1F466", "1F467"), _CHILD),
    **dict.fromkeys(("1F474", "1F475"), _OLDER_PERSON),
    **dict.fromkeys(("1F930", "1FAC3"), "1FAC4"),  # who is pregnant
    **dict.fromkeys(("1F934", "1F478"), "1FAC5"),  # who wears a crown
}
_SAME_AS = {
    # Pairs and Christmas people have one-code-point forms for some genders and sequences for the others.
    **dict.fromkeys(("1F46B", "1F46C", "1F46D"), "1F9D1-200D-1F91D-200D-1F9D1"),
    **dict.fromkeys(("1F385", "1F936"), "1F9D1-200D-1F384"),
    "1F9D1-200D-2764-200D-1F48B-200D-1F9D1": "1F48F",
    "1F9D1-200D-2764-200D-1F9D1": "1F491",
}


def plain(hexcode: str) -> str:
    """Return the normalized sequence."""
    return "-".join(part for part in hexcode.upper().split("-") if part != _SELECTOR)


def without_variants(hexcode: str) -> str:
    """Return the base that all variants in skin tone and gender share."""
    toneless = "-".join(part for part in plain(hexcode).split("-") if part not in _TONES)
    for sign in _GENDER_SIGNS:
        toneless = toneless.replace(f"-{_JOINER}-{sign}", "")
    neutral = "-".join(_NEUTRAL.get(part, part) for part in toneless.split("-"))
    return _SAME_AS.get(neutral, neutral)
