"""Tests of checkpoints: exact round trips, crashes at every step, damage, ranks, signals."""
