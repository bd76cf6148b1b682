"""The pages that retire an environment and disable an engine: they know the jobs there, and what the fleet has of them."""

from django.contrib import admin
from django.http import HttpRequest, HttpResponse

from environments.admin.confirming import Step, confirm_page
from environments.models import Engine, Environment
from jobs.models import Job, JobStatus
from workers.fleet.retiring import disable, retire

FOR_GOOD = "Its cores become free for others. This cannot be undone."
DISABLE = Step("Disable", lambda engine, _: disable(engine), "disabled", has_history=False)
DISABLED = ["It starts nothing. Jobs of its queue stay there until they expire, or it is activated again."]


def retire_page(request: HttpRequest, pk: int) -> HttpResponse:
    """active or draining → retired, once it is confirmed."""
    environment = Environment.objects.select_related("engine").filter(pk=pk).first()
    queued = Job.objects.filter(environment=pk, status=JobStatus.QUEUED).count()
    waiting = f"Jobs that wait in its queue: {queued}. They end as expired, and cost nothing."
    follows = [FOR_GOOD, waiting if queued else "No job waits in its queue."]
    done = f"retired; the jobs of its queue ({queued}) end as expired" if queued else "retired"
    step = Step("Retire", retire, done)
    return confirm_page(admin.site.get_model_admin(Environment), request, environment, step, follows)


def disable_page(request: HttpRequest, pk: int) -> HttpResponse:
    """→ disabled, once it is confirmed."""
    engine = Engine.objects.filter(pk=pk).first()
    return confirm_page(admin.site.get_model_admin(Engine), request, engine, DISABLE, DISABLED)
