"""The models that Calotype supports and the files they come in."""
