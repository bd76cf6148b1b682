"""The static beat schedule: knocks in seconds. Two beats are harmless: each action is idempotent or takes a lock.

Every entry carries `expires`, so that a queue which nobody reads does not fill with old knocks.
"""

SITE_QUEUE = "site"


def _every(seconds: float, name: str) -> dict[str, object]:
    return {"task": name, "schedule": seconds, "options": {"queue": SITE_QUEUE, "expires": max(seconds, 5.0)}}


BEAT_SCHEDULE = {
    "pulse": _every(10.0, "workers.pulse"),
    "repair lost knocks": _every(5.0, "workers.repair_knocks"),
    "notice silent workers": _every(5.0, "workers.notice_lost_workers"),
    "expire queued jobs": _every(5.0, "workers.expire_queued"),
    "reclaim": _every(10.0, "workers.reclaim"),
    "sweep engines": _every(30.0, "workers.knock_sweeps"),
    "fleet": _every(5.0, "workers.fleet_pass"),
    "retention": _every(60.0, "workers.purge_expired"),
    "rent pods": _every(10.0, "providers.rent_due"),
    "observe pods": _every(15.0, "providers.observe_pods"),
    "pod terminations": _every(15.0, "providers.check_pod_terminations"),
    "orphaned pods": _every(60.0, "providers.sweep_orphans"),
    "stray outputs": _every(3600.0, "workers.remove_stray_outputs"),
}
