"""The form of an environment, and its page in tabs: which part stands where, and which of them have errors."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import slugify
from unfold.widgets import UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget

from compute_site.core.admin import EditedForm
from environments.cpuset import format_cores, parse_cores
from environments.models import Environment

# Tab → its title; in this order. A tab without a part of this page is left out.
TABS = {
    "general": "General",
    "resources": "Resources",
    "cores": "Cores",
    "devices": "Devices",
    "access_rules": "Access",
    "price_lists": "Prices",
    "free_tier": "Free tier",
    "constraints": "Constraints",
    "jobs": "Jobs now",
    "history": "History",
}
EVERYWHERE = "everywhere"  # a part that stands below every tab
PLACES = {None: "general", "Limits": "general", "Cores": "cores", "Why": EVERYWHERE}  # fieldset → tab


class EnvironmentForm(EditedForm):
    """An environment with the list of its cores as text. `kept` are totals above the host's size from before."""

    kept: Mapping[int, int] = {}
    cores = forms.CharField(
        required=False,
        widget=UnfoldAdminTextInputWidget,
        help_text="Cores that belong to it, for example 0-3,8. Empty = as many of the lowest free cores as the cpu"
        " total says; without a cpu resource, all that nobody has.",
    )
    labels = forms.CharField(
        required=False,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}),
        help_text="What jobs may select it by: one line per label, its name and a short text, for example “gpu a100”.",
    )
    comment = forms.CharField(
        required=False,
        max_length=1000,
        label="Why this change",
        widget=UnfoldAdminTextInputWidget,
        help_text="Kept in the history with the change; may be empty. For example: two cores for the evening.",
    )

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.initial["labels"] = "\n".join(f"{name} {text}" for name, text in self.instance.labels.items())
        if "description" in self.fields:  # not for who may only look
            self.fields["description"].widget.attrs["rows"] = 3
        if self.instance.pk is not None:
            self.initial["cores"] = format_cores(self.instance.cores.values_list("index", flat=True))

    def title_of(self, path: str) -> str:
        """The tab's title, where the path is of a whole tab."""
        return TABS.get(path, path)

    def clean_labels(self) -> dict[str, str]:
        """Text by name. Raises ValidationError for a name that comes twice; the rest is the model's to refuse."""
        labels: dict[str, str] = {}
        for line in filter(None, (text.strip() for text in self.cleaned_data["labels"].splitlines())):
            name, _, text = line.partition(" ")
            if name in labels:
                raise ValidationError(f"{name} stands there twice; keep one line.")
            labels[name] = text.strip()
        return labels

    def clean_cores(self) -> str:
        """The same text in its shortest form. Raises ValidationError for what is no list of cores."""
        return format_cores(parse_cores(self.cleaned_data["cores"]))


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the page on its tab: fields, or what is only shown."""

    tab: str
    fieldset: Any = None
    shown: SafeString | str = ""


def in_tabs(context: Mapping[str, Any], shown: Mapping[str, SafeString | str]) -> dict[str, Any]:
    """What the template needs beyond Django's context: parts, tabs with the number of their errors, the tab to open.

    `shown` is by tab. With errors, the first tab that has one is opened; else the address says which.
    """
    parts = [Part(PLACES[fieldset.name], fieldset) for fieldset in context["adminform"]]
    parts += [Part(tab, shown=html) for tab, html in shown.items()]
    inlines = context["inline_admin_formsets"]
    there = {part.tab for part in parts} | {inline.formset.prefix for inline in inlines}
    wrong = _errors(parts, inlines)
    for path in context["adminform"].form.refused:
        head = path.split(".")[0]  # what belongs to all rows of a tab together
        if head in TABS and not wrong.get(head):
            wrong[head] = 1
    items = [
        {"title": _title(title, wrong.get(tab, 0)), "inline": tab, "link": "", "has_permission": True}
        for tab, title in TABS.items()
        if tab in there
    ]
    return {
        "parts": parts,
        "tab_list": [{"models": [{"name": str(Environment._meta), "detail": True}], "items": items}],
        "open_tab": next((slugify(tab) for tab in TABS if wrong.get(tab)), ""),
    }


def _errors(parts: Sequence[Part], inlines: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in parts:
        if part.fieldset is not None:
            found[part.tab] = found.get(part.tab, 0) + sum(1 for _ in _wrong_fields(part.fieldset))
    for inline in inlines:
        rows = sum(len(errors) for errors in inline.formset.errors)
        found[inline.formset.prefix] = rows + len(inline.formset.non_form_errors())
    return found


def _wrong_fields(fieldset: Any) -> Iterator[Any]:
    for line in fieldset:
        for field in line:
            if not getattr(field, "is_readonly", False) and field.errors():
                yield field


def _title(title: str, errors: int) -> SafeString | str:
    if not errors:
        return title
    words = "1 error" if errors == 1 else f"{errors} errors"
    return format_html('{} <span class="cs-count" title="{}">{}</span>', title, words, errors)
