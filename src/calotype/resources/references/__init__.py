"""What others measured, one JSON file a source; `calotype.bench.references` reads them."""
