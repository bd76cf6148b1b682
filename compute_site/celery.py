"""The Celery app. A message is only a knock on the door: results are never kept, lost knocks are repaired."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "compute_site.settings")

app = Celery("compute_site")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
