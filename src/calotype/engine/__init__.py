"""A model plus an ordered list of passes: what turns a request into pictures."""
