"""What every other part stands on: errors, paths, the machine, progress. No torch."""
