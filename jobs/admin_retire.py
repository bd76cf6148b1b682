"""The page that retires an environment: it tells what becomes of the jobs there, which stand above the environments."""

from django.contrib import admin
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse

from environments import editing
from environments.admin.confirming import Step, confirm_page
from environments.models import EngineKind, Environment
from jobs.models import Job, JobStatus

FOR_GOOD = "Its cores become free for others. This cannot be undone."


def retire_page(request: HttpRequest, pk: int) -> HttpResponse:
    """active or draining → retired, once it is confirmed."""
    environment = Environment.objects.select_related("engine").filter(pk=pk).first()
    queued, running = _jobs_of(environment) if environment else (0, 0)
    waiting = f"Jobs that wait in its queue: {queued}. They end as expired, and cost nothing."
    follows = [FOR_GOOD, waiting if queued else "No job waits in its queue."]
    if running and environment and environment.engine.kind == EngineKind.FLEET:
        follows.append(f"Jobs that remote workers run here: {running}. They go on to their end.")
    done = f"retired; the jobs of its queue ({queued}) end as expired" if queued else "retired"
    step = Step("Retire", editing.retire, done)
    return confirm_page(admin.site.get_model_admin(Environment), request, environment, step, follows)


def _jobs_of(environment: Environment) -> tuple[int, int]:
    """How many are queued, and how many are beyond that and not final."""
    queued = Q(status=JobStatus.QUEUED)
    running = Q(status__in=(JobStatus.PREPARING, JobStatus.RUNNING, JobStatus.COLLECTING))
    rows = Job.objects.filter(queued | running, environment=environment)
    found = rows.aggregate(queued=Count("pk", filter=queued), running=Count("pk", filter=running))
    return found["queued"], found["running"]
