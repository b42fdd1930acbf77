"""`python -m calotype.serve.lifecycle`."""

from calotype.serve.lifecycle.main import main

if __name__ == "__main__":
    raise SystemExit(main())
