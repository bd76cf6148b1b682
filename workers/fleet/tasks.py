"""Celery's door to the fleet: a knock and the periodic pass do the same."""

from celery import shared_task

from workers.fleet import passes


@shared_task(name="workers.fleet_pass", ignore_result=True)
def fleet_pass() -> None:
    """There may be something to do for the fleet; nothing while it is off."""
    passes.run_pass()
