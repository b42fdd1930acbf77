"""`calotype doctor`, the facts it gathers, and what it makes of them."""
