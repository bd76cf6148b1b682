"""What Celery makes of our settings."""

from celery import current_app


def test_a_worker_never_gives_up_on_its_broker():
    """Celery's default ends the worker after a hundred tries, and with it the watching of running jobs."""
    assert current_app.conf.broker_connection_max_retries is None
