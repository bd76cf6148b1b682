"""The page that asks before the state of an environment or engine changes: what follows from it, what is in the way, and why."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
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
from environments.models import Door, Engine, Environment


@dataclass(frozen=True, slots=True)
class Step:
    """A change of state: its button, what it does, and what became of the row when it is done.

    `has_history`: what is changed keeps each edit with a comment; so an environment does, an engine does not.
    """

    button: str
    act: Callable[[Any, Author], None]
    done: str
    has_history: bool = True


def confirm_page(
    admin: ModelAdmin,
    request: HttpRequest,
    row: Environment | Engine | None,
    step: Step,
    follows: Sequence[str],
) -> HttpResponse:
    """`follows`: what the step means, line by line. A POST makes it, and a comment stands in the history.

    What refuses it is told before as well: a GET tries the step and takes it back. Raises Http404, PermissionDenied.
    """
    if row is None:
        raise Http404
    if not admin.has_change_permission(request):
        raise PermissionDenied
    form = (CommentForm if step.has_history else forms.Form)(
        request.POST if request.method == "POST" else None
    )
    page = reverse(f"admin:{admin.opts.app_label}_{admin.opts.model_name}_change", args=[row.pk])
    if form.is_valid():
        by = author(request, Door.BUTTON, form.cleaned_data.get("comment", ""))
        refused = refusals(lambda one: step.act(one, by), row)
        if not refused:
            admin.log_change(request, row, step.done)
            messages.success(request, f"{row}: {step.done}")
            return redirect(page)
    else:
        refused = refusals(lambda one: _try(step, one), row)
    context = {
        **admin.admin_site.each_context(request),
        "opts": admin.opts,
        "title": f"{step.button} {row}?",
        "button": step.button,
        "follows": follows,
        "refused": refused,
        "form": form,
        "back": page,
    }
    return TemplateResponse(request, "environments/confirm.html", context)


def _try(step: Step, row: Environment | Engine) -> None:
    """The step, and nothing of it stays."""
    with transaction.atomic():
        step.act(row, Author())
        transaction.set_rollback(True)
