"""The page that asks before the state of an environment changes: what follows from it, what is in the way, and why."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse

from compute_site.core.admin import refusals
from environments.admin.history import CommentForm, author
from environments.history import Author
from environments.models import Door, Environment


@dataclass(frozen=True, slots=True)
class Step:
    """A change of state: its button, what it does, and what became of the environment when it is done."""

    button: str
    act: Callable[[Environment, Author], None]
    done: str


def confirm_page(
    admin: ModelAdmin,
    request: HttpRequest,
    environment: Environment | None,
    step: Step,
    follows: Sequence[str],
) -> HttpResponse:
    """`follows`: what the step means, line by line. A POST makes it, and its comment stands in the history.

    What refuses it is told before as well: a GET tries the step and takes it back. Raises Http404, PermissionDenied.
    """
    if environment is None:
        raise Http404
    if not admin.has_change_permission(request):
        raise PermissionDenied
    form = CommentForm(request.POST if request.method == "POST" else None)
    page = reverse("admin:environments_environment_change", args=[environment.pk])
    if form.is_valid():
        by = author(request, Door.BUTTON, form.cleaned_data["comment"])
        refused = refusals(lambda row: step.act(row, by), environment)
        if not refused:
            admin.log_change(request, environment, step.done)
            messages.success(request, f"{environment}: {step.done}")
            return redirect(page)
    else:
        refused = refusals(lambda row: _try(step, row), environment)
    context = {
        **admin.admin_site.each_context(request),
        "opts": admin.opts,
        "title": f"{step.button} {environment}?",
        "button": step.button,
        "follows": follows,
        "refused": refused,
        "form": form,
        "back": page,
    }
    return TemplateResponse(request, "environments/confirm.html", context)


def _try(step: Step, environment: Environment) -> None:
    """The step, and nothing of it stays."""
    with transaction.atomic():
        step.act(environment, Author())
        transaction.set_rollback(True)
