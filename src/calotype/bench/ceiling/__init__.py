"""The most a device reaches: measured once, remembered, asked for by whoever tells a share of it.

The work that is measured is `calotype.engine.rates`; where it is kept is `calotype.engine.ceilings`. Both
stand below training, which tells its shares too.
"""

from calotype.bench.ceiling.measuring import measure
from calotype.engine.ceilings import known

__all__ = ["known", "measure"]
