"""`python -m calotype.serve.worker`: the server starts it and talks to it over an inherited socket."""

from calotype.serve.worker.main import main

if __name__ == "__main__":
    main()
