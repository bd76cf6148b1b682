"""The composition root. Importing it makes the Celery app the current one, as `shared_task` expects."""

from compute_site.celery import app as celery_app

__all__ = ["celery_app"]
