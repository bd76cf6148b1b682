"""Named points in the path of a job, where a fault test may stop this process.

`COMPUTE_SITE_STOP_AT=NAME` kills the process (as `kill -9` would) when it comes to that point;
`NAME:STOP` freezes it there once (SIGSTOP). Unset, as always in production, a checkpoint costs one comparison.
"""

import os
import signal
import threading

GATE_POINTS = ("gate.created", "gate.started", "gate.ready")  # passed by jobs with a network alone
POINTS = (
    "take.before",
    "take.after",
    "image.after",
    "workspace.after",
    *GATE_POINTS,
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

_point = ""
_freezes = False


def arm(wanted: str) -> None:
    """Stop at `wanted` from now on: `NAME`, `NAME:STOP`, or nowhere when it is empty. Raises ValueError."""
    global _point, _freezes
    name, _, how = wanted.partition(":")
    if (name and name not in POINTS) or how not in ("", "STOP"):
        raise ValueError(f"COMPUTE_SITE_STOP_AT={wanted}: unknown; choose one of {', '.join(POINTS)}")
    _point, _freezes = name, how == "STOP"


def checkpoint(name: str) -> None:
    """Stop here when a fault test asked for it."""
    if name != _point:
        return
    if not _freezes:
        os.kill(os.getpid(), signal.SIGKILL)
    arm("")  # it goes on, when it is let, as if nothing had been
    # To this thread: the process's first one would be scheduled some time, and this one would go on until then.
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


arm(os.environ.get("COMPUTE_SITE_STOP_AT", ""))
