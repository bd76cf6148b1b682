"""One spelling of JSON data: what is hashed, compared or signed."""

import json
from typing import Any


def canonical(data: Any) -> bytes:
    """Sorted keys, no spaces, UTF-8. Raises ValueError for NaN and infinities."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()
