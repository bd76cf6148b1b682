"""The page that retires an environment: it tells what becomes of the jobs there, which stand above the environments."""

from django.contrib import admin
from django.http import HttpRequest, HttpResponse

from environments.admin.confirming import Step, confirm_page
from environments.models import Environment
from jobs.models import Job, JobStatus
from jobs.retiring import retire

FOR_GOOD = "Its cores become free for others. This cannot be undone."


def retire_page(request: HttpRequest, pk: int) -> HttpResponse:
    """active or draining → retired, once it is confirmed."""
    environment = Environment.objects.select_related("engine").filter(pk=pk).first()
    queued = Job.objects.filter(environment=pk, status=JobStatus.QUEUED).count()
    waiting = f"Jobs that wait in its queue: {queued}. They end as expired, and cost nothing."
    follows = [FOR_GOOD, waiting if queued else "No job waits in its queue."]
    done = f"retired; the jobs of its queue ({queued}) end as expired" if queued else "retired"
    step = Step("Retire", retire, done)
    return confirm_page(admin.site.get_model_admin(Environment), request, environment, step, follows)
