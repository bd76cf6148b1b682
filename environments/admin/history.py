"""The history of an environment on its page, value by value, and the page that reverts to an earlier state."""

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.widgets import UnfoldAdminTextInputWidget

from compute_site.core.errors import NotPermitted
from compute_site.core.showing import ago, table
from environments.history import Author, values
from environments.importing import Value, difference, refusal_lines, told_to
from environments.models import Door, Edit, Environment
from environments.reverting import no_way_back, revert

SHOWN = 50  # edits; the rest is one number
MOST_VALUES = 12  # of one edit, before they are folded
CHANGED = (
    "It was changed since this page was opened. Nothing was written: look at the difference as it is now."
)


def author(request: HttpRequest, door: str, comment: str = "") -> Author:
    """Whoever sent this request."""
    return Author(request.user.get_username(), door, comment, request.user)


def to_tab(environment: Environment) -> str:
    """The address of the history on the environment's page."""
    return reverse("admin:environments_environment_change", args=[environment.pk]) + "#history"


def history(environment: Environment, user: Any, *, may_revert: bool) -> SafeString | str:
    """Each edit, newest first: when, who, why, what it changed as far as `user` may see that, and the way back to it, or
    why there is none."""
    edits = list(environment.edits.all()[: SHOWN + 1])
    if not edits:
        return "Nothing is kept yet: the history begins with the next change."
    pairs = zip(edits, [*edits[1:], None], strict=True)
    why_not = no_way_back(environment)
    links = may_revert and not why_not
    rows = [_row(edit, older, user, links and number > 0) for number, (edit, older) in enumerate(pairs)]
    head = ("when", "who", "what was changed", "")
    rest = environment.edits.count() - SHOWN
    more = format_html('<p class="cs-note">{} older ones are kept.</p>', rest) if rest > 0 else ""
    note = format_html('<p class="cs-note mb-4">{}</p>', why_not) if why_not else ""
    return format_html("{}{}{}", note, table(head, rows[:SHOWN]), more)


def _row(edit: Edit, older: Edit | None, user: Any, may_revert: bool) -> tuple[Any, ...]:
    page = reverse("admin:environments_environment_revert", args=[edit.environment_id, edit.pk])
    link = (
        format_html('<a class="cs-link cs-revert" href="{}">revert to this</a>', page) if may_revert else ""
    )
    how = edit.get_door_display()
    who = format_html("{}<div class='cs-note'>{}</div>", edit.by, how) if edit.by else how
    said = format_html("<div>“{}”</div>", edit.comment) if edit.comment else ""
    if older is None:
        changed: SafeString | str = "The beginning." if edit.door == Door.FOUND else "Made."
    else:
        changed = _folded(told_to(user, difference(values(older), values(edit))))
    return ago(edit.made_at), who, format_html("{}{}", said, changed), link


def _folded(changed: Sequence[Value]) -> SafeString | str:
    if len(changed) <= MOST_VALUES:
        return difference_table(changed)
    return format_html(
        "<details><summary>{} values</summary>{}</details>", len(changed), difference_table(changed)
    )


def difference_table(changed: Sequence[Value]) -> SafeString | str:
    """A line for each value: its path, before and after."""
    lines = ((value.path, _told(value.before), _told(value.after)) for value in changed)
    html = format_html_join("", "<div><code>{}</code> {} → {}</div>", lines)
    return format_html('<div class="cs-changes">{}</div>', html) if html else "Nothing."


def _told(value: str | None) -> SafeString:
    return format_html("<b>{}</b>", "nothing" if value is None else value or "empty")


class CommentForm(forms.Form):
    """Why: asked before each change that has no form of its own."""

    comment = forms.CharField(
        required=False,
        max_length=1000,
        label="Why this change",
        widget=UnfoldAdminTextInputWidget,
        help_text="Kept in the history; may be empty.",
    )


def revert_page(admin: ModelAdmin, request: HttpRequest, pk: int, edit_pk: int) -> HttpResponse:
    """What a revert would change; a POST applies it, if it is still that."""
    edit = get_object_or_404(Edit.objects.select_related("environment__engine"), pk=edit_pk, environment=pk)
    if not admin.has_change_permission(request, edit.environment):
        raise Http404
    form = CommentForm(request.POST if request.method == "POST" else None)
    agreed = form.is_valid()  # never without a POST; a comment that cannot be kept is asked for again
    comment = form.cleaned_data["comment"] if agreed else ""
    told = author(request, Door.REVERT, comment or f"Back to {edit.made_at:%Y-%m-%d %H:%M:%S} UTC.")
    expected = request.POST.get("expected", "")
    context: dict[str, Any] = {"edit": edit, "form": form, "made": ago(edit.made_at)}
    try:
        plan = revert(edit, told, expected=expected, dry_run=not agreed or not expected)
    except ValidationError as error:
        return _page(admin, request, edit, {**context, "refused": refusal_lines(error)})
    except NotPermitted as error:
        return _page(admin, request, edit, {**context, "refused": [str(error)]})
    if plan.applied:
        messages.success(request, f"{edit.environment}: reverted.")
        return redirect(to_tab(edit.environment))
    (change,) = (one for one in plan.changes if one.name == str(edit.environment))
    context |= {
        "plan": plan,
        "difference": difference_table(change.values),
        "notes": [note.message for note in plan.notes],
        "warning": CHANGED if agreed else "",
    }
    return _page(admin, request, edit, context)


def _page(admin: ModelAdmin, request: HttpRequest, edit: Edit, context: dict[str, Any]) -> HttpResponse:
    common = {
        **admin.admin_site.each_context(request),
        "opts": admin.opts,
        "title": f"Revert {edit.environment}",
        "back": to_tab(edit.environment),
    }
    return TemplateResponse(request, "environments/revert.html", {**common, **context})
