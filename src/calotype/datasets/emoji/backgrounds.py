"""The flat background colors by name."""

Color = tuple[int, int, int]

BACKGROUNDS: dict[str, Color] = {
    "white": (255, 255, 255),
    "gray": (158, 158, 158),
    "black": (16, 16, 16),
    "red": (224, 64, 64),
    "orange": (255, 152, 64),
    "yellow": (255, 236, 130),
    "green": (88, 176, 88),
    "teal": (32, 158, 148),
    "light blue": (174, 216, 240),
    "blue": (64, 112, 224),
    "purple": (144, 96, 208),
    "pink": (255, 182, 206),
}
