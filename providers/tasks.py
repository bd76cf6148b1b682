"""Celery tasks of the site's queue. A lost, late or doubled message changes nothing."""

from celery import shared_task

from providers import ending, observing, renting, sweeping


@shared_task(name="providers.rent_pod", ignore_result=True)
def rent_pod(pod_id: int) -> None:
    """Somebody asked for a pod."""
    renting.rent(pod_id)


@shared_task(name="providers.rent_due", ignore_result=True)
def rent_due() -> None:
    """Try the intents whose knock was lost, or that found nothing on offer."""
    renting.rent_due()


@shared_task(name="providers.observe_pods", ignore_result=True)
def observe_pods() -> None:
    """What the providers say of our pods."""
    observing.observe_pods()


@shared_task(name="providers.check_pod_terminations", ignore_result=True)
def check_pod_terminations() -> None:
    """End what is due, and pursue what does not die."""
    ending.check_pod_terminations()


@shared_task(name="providers.sweep_orphans", ignore_result=True)
def sweep_orphans() -> None:
    """Pods of ours that no row knows."""
    sweeping.sweep_orphans()
