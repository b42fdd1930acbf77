"""The models Calotype knows and the files they come in. Knows nothing of sampling or of requests' knobs."""
