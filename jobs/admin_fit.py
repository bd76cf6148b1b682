"""“What would fit now”: a request to an environment answered as admission and scheduling would, with nothing written."""

from collections.abc import Callable, Mapping
from typing import Any

from django import forms
from django.contrib.admin import ModelAdmin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.safestring import SafeString
from unfold.widgets import UnfoldAdminIntegerFieldWidget, UnfoldAdminSelectWidget

from compute_site.core.showing import DASH, mib, span, table
from environments.amounts import allowance
from environments.bounds import SIZED
from environments.models import Environment, Tier
from environments.use import ResourceUse, free_amounts
from jobs.billing.charges import money_text
from jobs.quoting import Quote, fit
from jobs.spec import Spec

PREFIX = "resource-"  # before the slug of a resource
UNITS = {"cpu": "cores", "ram": "MiB", "disk": "MiB", "device": "devices", "counter": "units"}


class FitForm(forms.Form):
    """The tier, and an amount of each resource that the environment offers."""

    tier = forms.ChoiceField(
        choices=Tier.choices,
        initial=Tier.PAID,
        widget=UnfoldAdminSelectWidget,
        help_text="Paid jobs cost its prices; free ones have the limits of the free tier.",
    )

    def __init__(self, data: Any, uses: Mapping[str, ResourceUse]) -> None:
        super().__init__(data)
        for slug, use in uses.items():
            self.fields[PREFIX + slug] = forms.IntegerField(
                label=slug,
                min_value=0,
                required=False,
                widget=UnfoldAdminIntegerFieldWidget,
                help_text=f"In {UNITS[use.kind]}; empty = not asked.",
            )

    @property
    def asked(self) -> dict[str, int]:
        """Amounts by slug, of a form that is valid; what was left empty is not asked."""
        found = {name.removeprefix(PREFIX): self.cleaned_data[name] for name in self.fields if name != "tier"}
        return {slug: amount for slug, amount in found.items() if amount is not None}


def would_fit(admin: ModelAdmin) -> Callable[..., HttpResponse]:
    """The view, as a part of this admin. A GET only reads, so the address of an answer can be passed on."""

    def view(request: HttpRequest, pk: int) -> HttpResponse:
        if not request.user.has_perm("environments.view_environment"):
            raise PermissionDenied
        rows = Environment.objects.select_related("engine__host", "free_tier")
        environment = get_object_or_404(rows, pk=pk)
        uses = free_amounts([environment])[environment.pk]
        form = FitForm(request.GET if "tier" in request.GET else None, uses)
        answer = _answer(environment, form, uses) if form.is_valid() else {}
        context = {
            **admin.admin_site.each_context(request),
            "title": f"What would fit now in {environment}",
            "form": form,
            "back": reverse("admin:environments_environment_change", args=[pk]),
            **answer,
        }
        return TemplateResponse(request, "jobs/would_fit.html", context)

    return view


def _answer(environment: Environment, form: FitForm, uses: Mapping[str, ResourceUse]) -> dict[str, Any]:
    tier, asked = form.cleaned_data["tier"], form.asked
    found = fit(environment, Spec(environment=str(environment), resources=asked, tier=tier))
    rules = environment.access_rules.filter(tier=tier).count()
    return {
        "verdict": verdict(found),
        "price": _price(found),
        "filled": _filled(environment, found, asked, uses, tier),
        "access": f"Only those whom its access rules ({rules}) name may use this tier." if rules else "",
    }


def verdict(found: Quote) -> tuple[str, list[str]]:
    """What becomes of the request: `starts`, `waits` or `refused`, and the words for it."""
    if found.refusal is not None:
        told = getattr(found.refusal, "messages", None) or [str(found.refusal)]
        return "refused", list(told)
    if found.estimated_wait == 0:
        return "starts", ["It would start now."]
    within = f" It would start in {span(found.estimated_wait)} at the latest." if found.estimated_wait else ""
    return "waits", [f"It would wait: {found.pending_reason}.{within}"]


def _price(found: Quote) -> str:
    if found.job is None:
        return ""
    if not found.job.terms["currency"]:
        return "It costs nothing."
    currency = found.job.terms["currency"]
    return (
        f"{money_text(found.price_per_minute)} {currency} per minute; at most {money_text(found.maximum_cost)} {currency}"
        f" for the longest run of {span(found.job.max_duration)}."
    )


def _filled(
    environment: Environment,
    found: Quote,
    asked: Mapping[str, int],
    uses: Mapping[str, ResourceUse],
    tier: str,
) -> SafeString | str:
    """The request, filled as admission fills it, beside what may be and what is free."""
    limits = allowance(environment, tier).limits
    gets = found.job.terms["resources"] if found.job is not None else {}
    rows = [
        (
            slug,
            _amount(use, asked.get(slug)),
            _amount(use, gets.get(slug)),
            _amount(use, limits[slug].max if slug in limits else 0),
            _amount(use, use.room(tier)),
        )
        for slug, use in uses.items()
    ]
    return table(("resource", "asked", "gets", "most per job", "free now"), rows)


def _amount(use: ResourceUse, amount: int | None) -> str:
    if amount is None:
        return DASH
    return mib(amount) if use.kind in SIZED else str(amount)
