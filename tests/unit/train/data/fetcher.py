"""A program that fetches a file into the cache: python -m tests.unit.train.data.fetcher URL"""

import sys

from calotype.train.data.sources.http_download import fetch
from tests.unit.train.data.together import wait_for_the_others

if __name__ == "__main__":
    wait_for_the_others()
    fetch(sys.argv[1])
