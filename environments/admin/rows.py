"""The rows of an environment's page: resources with their devices and free part, price lists, the free tier."""

from decimal import Decimal, InvalidOperation
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from unfold.admin import StackedInline, TabularInline
from unfold.widgets import (
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectMultipleWidget,
    UnfoldAdminTextareaWidget,
)

from compute_site.core.admin import StrictForm, StrictFormSet
from compute_site.core.numbers import decimal_error
from compute_site.core.showing import DASH
from environments.core_words import NOT_ONE
from environments.models import AccessRule, Device, FreeResource, FreeTier, PriceList, Resource, ResourceKind
from environments.models.offer import NO_PRICE, price_twice
from environments.models.resource import KIND_TWICE, PHYSICAL
from environments.resources import drop_resource
from environments.setup import errors_at


def whole_number(help_text: str) -> forms.IntegerField:
    """An optional amount."""
    return forms.IntegerField(
        min_value=0, required=False, widget=UnfoldAdminIntegerFieldWidget, help_text=help_text
    )


class ResourceForm(StrictForm):
    """One resource, the devices behind it, and what free jobs may have of it."""

    chosen_devices = forms.ModelMultipleChoiceField(
        Device.objects.select_related("host"),
        required=False,
        label="devices",
        widget=UnfoldAdminSelectMultipleWidget,
        help_text="For kind devices: exactly these are handed out. Choose several with Ctrl.",
    )
    free_total = whole_number("What free jobs may use in all; empty = not available to free jobs.")
    free_min = whole_number("Least a free job gets (default 0).")
    free_max = whole_number("Most one free job may ask; empty = the free total.")

    class Meta:
        model = Resource
        fields = ("slug", "kind", "total", "min", "max", "sharing")

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.fields["total"].required = False
        if self.instance.pk is None:
            return
        if self.instance.kind != ResourceKind.DEVICE:  # which stays
            self.fields["chosen_devices"].widget = forms.MultipleHiddenInput()
        self.initial["chosen_devices"] = list(self.instance.devices.values_list("pk", flat=True))
        part = FreeResource.objects.filter(resource=self.instance).first()
        if part is not None:
            self.initial.update(free_total=part.total, free_min=part.min, free_max=part.max)

    def path(self) -> str:
        """Refusals of a resource name its slug."""
        return f"resources.{self.data.get(self.add_prefix('slug'), '')}."

    def field_of(self, path: str) -> str:
        """Its devices and its free part have fields of other names here."""
        field = super().field_of(path)
        free = super().field_of(path.removeprefix("free_tier.")) if path.startswith("free_tier.") else ""
        return f"free_{free}" if free else {"devices": "chosen_devices"}.get(field, field)

    def clean(self) -> dict[str, Any]:
        """An empty total is the number of devices, or of the cores named above."""
        cleaned = super().clean()
        if cleaned.get("total") is None and "total" not in self.errors:
            kind = cleaned.get("kind")
            if kind == ResourceKind.DEVICE:
                cleaned["total"] = len(cleaned.get("chosen_devices") or ())
            elif kind == ResourceKind.CPU:
                cleaned["total"] = 0  # follows the named cores, or is all that are left
            else:
                self.add_error("total", "Enter a total: MiB for memory and disk, a number for counters.")
        elif cleaned.get("kind") == ResourceKind.CPU and cleaned.get("total") == 0:
            self.add_error("total", NOT_ONE)
        return cleaned


class ResourceFormSet(StrictFormSet):
    """Of two new rows neither is there yet that the other could be compared with."""

    def clean(self) -> None:
        """A second cpu, ram or disk is refused beside its kind."""
        super().clean()
        seen = set()
        for row in self.forms:
            kind = getattr(row, "cleaned_data", {}).get("kind")
            if kind not in PHYSICAL or row in self.deleted_forms:
                continue
            if kind in seen and "kind" not in row.errors:
                row.add_error("kind", KIND_TWICE)
            seen.add(kind)

    def delete_existing(self, obj: Resource, commit: bool = True) -> None:
        """As by every other door: one that old reservations refer to stays as a row of nothing."""
        if commit:
            with errors_at(f"resources.{obj.slug}"):
                drop_resource(obj)


class ResourceInline(StackedInline):
    """What the environment offers, each resource with room for its amounts."""

    model = Resource
    form = ResourceForm
    formset = ResourceFormSet
    tab = True
    fields = (
        ("slug", "kind", "sharing"),
        ("total", "min", "max"),
        ("free_total", "free_min", "free_max"),
        "chosen_devices",
    )

    @admin.display(description="devices")
    def chosen_devices(self, resource: Resource) -> str:
        """For those who may only read the page."""
        return ", ".join(map(str, resource.devices.order_by("pk"))) or DASH

    def get_formset(self, request: Any, obj: Any = None, **options: Any) -> Any:
        """Django alone would refuse to delete what a job once had, with the names of all reservations there were."""
        formset = super().get_formset(request, obj, **options)
        formset.form.hand_clean_DELETE = lambda form: None
        return formset

    def get_extra(self, request: Any, obj: Any = None, **options: Any) -> int:
        """A new environment is asked for the three that it needs."""
        return 0 if obj else 3


class FreeTierForm(StrictForm):
    """The free tier; added with its defaults it is wanted still, though nothing was typed."""

    def path(self) -> str:
        """Refusals of the free tier."""
        return "free_tier."

    def has_changed(self) -> bool:
        """A row that was added is to be saved."""
        return self.instance.pk is None or super().has_changed()


class FreeTierInline(StackedInline):
    """The part that may be used without paying; its amounts stand with the resources."""

    model = FreeTier
    form = FreeTierForm
    tab = True
    extra = 0
    max_num = 1
    verbose_name_plural = "free tier"


class PriceListForm(StrictForm):
    """Prices in one currency, one line per resource."""

    prices = forms.CharField(
        error_messages={"required": NO_PRICE},
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 4}),
        help_text="One line per resource: its slug and the price of one unit (a core, a MiB, a device) per minute,"
        " for example “cpu 0.02”.",
    )

    class Meta:
        model = PriceList
        fields = ("currency",)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.instance.pk is not None:
            self.initial["prices"] = lines_of(self.instance)

    def path(self) -> str:
        """Refusals of a price list name its currency."""
        return f"price_lists.{self.data.get(self.add_prefix('currency'), '')}."

    def clean_prices(self) -> dict[str, Decimal]:
        """Price by resource slug. Raises ValidationError for a line that is none."""
        prices: dict[str, Decimal] = {}
        for line in filter(None, (text.strip() for text in self.cleaned_data["prices"].splitlines())):
            slug, _, text = line.partition(" ")
            try:
                price = Decimal(text.strip())
            except InvalidOperation:
                raise ValidationError(f"{slug}: {decimal_error(text.strip(), 0, 0, 0)}") from None
            if slug in prices:
                raise ValidationError(price_twice(slug))
            prices[slug] = price
        return prices


class PriceListInline(StackedInline):
    """What paid jobs cost."""

    model = PriceList
    form = PriceListForm
    formset = StrictFormSet
    tab = True
    fields = ("currency", "prices")
    extra = 0

    @admin.display(description="prices")
    def prices(self, price_list: PriceList) -> str:
        """For those who may only read the page."""
        return lines_of(price_list)


class AccessRuleForm(StrictForm):
    """One rule."""

    def path(self) -> str:
        """Refusals of a rule."""
        return "access."


class AccessRuleInline(TabularInline):
    """Who may use which tier; none = everybody."""

    model = AccessRule
    form = AccessRuleForm
    formset = StrictFormSet
    tab = True
    fields = ("tier", "kind", "value")
    extra = 0


def lines_of(price_list: PriceList) -> str:
    """Its prices as they are written, a line each."""
    prices = price_list.prices.select_related("resource").order_by("pk")
    return "\n".join(f"{price.resource.slug} {plain(price.per_minute)}" for price in prices)


def plain(price: Decimal) -> str:
    """A price without the zeros behind it."""
    text = f"{price:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
