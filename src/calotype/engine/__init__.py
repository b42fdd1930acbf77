"""The inference engine: a model plus an ordered list of passes turns a request into images."""
