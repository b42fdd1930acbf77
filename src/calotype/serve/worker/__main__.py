"""`python -m calotype.serve.worker`: started by a server, which speaks to it over an inherited socket."""

from calotype.serve.worker.main import main

if __name__ == "__main__":
    main()
