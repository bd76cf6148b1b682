"""How much of the long forms is done. `CHAOS_SCALE` (default 1.0) makes it more or less, `CHAOS_SEED` the same again."""

import os
import time

SCALE = float(os.environ.get("CHAOS_SCALE", "1"))
SEED = int(os.environ.get("CHAOS_SEED", str(time.time_ns() % 2**32)))


def times(count: int) -> int:
    """A number of things to do at this scale, at least one."""
    return max(1, round(count * SCALE))
