"""Celery tasks: short steps of a few lines. A lost, late or doubled message changes nothing."""

from celery import shared_task

from compute_site.core.pulse import pulse
from environments.models import Engine
from jobs import results, retention
from workers import granting, image_retention, lifecycle, presence, reclaim, repair, sweep
from workers.engines import connect
from workers.hands import nudge_all_on_commit


@shared_task(name="workers.pulse", ignore_result=True)
def show_pulse() -> None:
    """A knock that came all the way from beat: the site's own worker lives."""
    pulse()


@shared_task(name="workers.knock", ignore_result=True)
def knock(engine_id: int, passed_on: bool = False) -> None:
    """There may be work on the engine: have somebody look, here and in its other workers. The steps have threads of
    their own.
    """
    here = presence.here()
    if here is None or here.worker.engine_id != engine_id:
        raise RuntimeError(f"a knock for engine {engine_id} reached a process that is not its worker")
    here.watcher.poke()
    here.hands.ask()
    if not passed_on:
        here.peers.tell()


@shared_task(name="workers.sweep", ignore_result=True)
def sweep_engine(engine_id: int) -> None:
    """Remove what is left on the engine without a live attempt, and the images that nobody uses any more; try its
    network where jobs want one.
    """
    engine = Engine.objects.get(pk=engine_id)
    sweep.sweep(engine)
    image_retention.remove_unused(engine)
    if granting.try_if_due(connect(engine)):
        nudge_all_on_commit(engine)


@shared_task(name="workers.repair_knocks", ignore_result=True)
def repair_knocks() -> None:
    """Knock on every engine that has something to do: a lost knock costs a few seconds."""
    repair.repair_knocks()


@shared_task(name="workers.knock_sweeps", ignore_result=True)
def knock_sweeps() -> None:
    """Ask every engine's worker to sweep."""
    repair.knock_sweeps()


@shared_task(name="workers.notice_lost_workers", ignore_result=True)
def notice_lost_workers() -> None:
    """Store as lost the workers that have been silent for the TTL."""
    lifecycle.mark_lost()


@shared_task(name="workers.expire_queued", ignore_result=True)
def expire_queued() -> None:
    """End the queued jobs whose wait ran out."""
    retention.expire_queued()


@shared_task(name="workers.reclaim", ignore_result=True)
def reclaim_gone() -> None:
    """End what ran on hosts that were declared gone."""
    reclaim.reclaim_gone_hosts()


@shared_task(name="workers.purge_expired", ignore_result=True)
def purge_expired() -> None:
    """Remove stored results and logs whose time is over."""
    retention.purge_expired()


@shared_task(name="workers.remove_stray_outputs", ignore_result=True)
def remove_stray_outputs() -> None:
    """Remove stored contents that no artifact names: of attempts that stored and never settled."""
    results.remove_strays()
