"""Named points in the path of a job, where a fault test may stop this process.

`COMPUTE_SITE_STOP_AT=NAME` kills the process (as `kill -9` would) when it comes to that point;
`NAME:STOP` freezes it (SIGSTOP). Unset, as always in production, a checkpoint costs one comparison.
"""

import os
import signal

POINTS = (
    "take.before",
    "take.after",
    "workspace.after",
    "image.after",
    "create.before",
    "create.after",
    "created.after",
    "allow.after",
    "start.after",
    "running.after",
    "stop.before",
    "stop.after",
    "exit.before",
    "exit.after",
    "collect.before",
    "collect.after",
    "settle.after",
    "clean.removed",
    "clean.destroyed",
    "clean.after",
)

_point, _, _how = os.environ.get("COMPUTE_SITE_STOP_AT", "").partition(":")
if _point and _point not in POINTS:
    raise ValueError(f"COMPUTE_SITE_STOP_AT={_point}: unknown point; choose one of {', '.join(POINTS)}")


def checkpoint(name: str) -> None:
    """Stop here when a fault test asked for it."""
    if name == _point:
        os.kill(os.getpid(), signal.SIGSTOP if _how == "STOP" else signal.SIGKILL)
