"""A process with everything imported and nothing open, that forks workers: one is up in a moment.

Reads one order a line (JSON: engine, log, stop_at, settings), answers with the worker's process id. Dies with its
parent, and its workers die with it.
"""

import ctypes
import gc
import importlib
import json
import os
import signal
import sys
import traceback
from typing import Any

import django

django.setup()

from celery import current_app  # noqa: E402
from django.conf import settings  # noqa: E402
from django.core.checks import run_checks  # noqa: E402
from django.core.management import call_command  # noqa: E402

import workers.tasks  # noqa: E402, F401
from workers import checkpoint  # noqa: E402

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Fork a worker for each order until there are no more."""
    die_with_parent()
    preload()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead vanish by themselves
    for line in iter(sys.stdin.readline, ""):
        pid = os.fork()
        if pid == 0:
            become_worker(json.loads(line))
        print(pid, flush=True)


def preload() -> None:
    """What a worker would import and check when it starts, once for all of them; opens nothing."""
    for name in (
        "celery.apps.worker",
        "celery.worker.consumer",
        "celery.concurrency.thread",
        "kombu.transport.redis",
    ):
        importlib.import_module(name)
    current_app.finalize()
    current_app.loader.import_default_modules()
    run_checks()
    gc.freeze()


def become_worker(order: dict[str, Any]) -> None:
    """Never returns: runs the engine's worker as `manage.py engine_worker` does, and ends the process."""
    code = 1
    try:
        os.setsid()
        die_with_parent()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for target in (1, 2):
            os.dup2(log, target)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for name, value in order["settings"].items():
            setattr(settings, name, value)
        current_app.conf.update(broker_url=settings.CELERY_BROKER_URL)
        checkpoint.arm(order["stop_at"])
        call_command("engine_worker", order["engine"], *order["options"])
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:  # noqa: BLE001 - a forked child must not go on in its parent's loop, whatever happened
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(code)


def die_with_parent() -> None:
    """SIGKILL for this process when its parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main()
