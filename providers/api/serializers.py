"""What goes in and comes out. A key only goes in."""

from datetime import datetime
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from compute_site.core.api import StrictSerializer
from providers.budgets import cost_so_far, plain
from providers.models import Pod, PodEvent, ProviderAccount

MONEY: dict[str, Any] = {"max_digits": 38, "decimal_places": 18}


class USD(serializers.CharField):
    """An amount as decimal text, without zeros at the end."""

    def to_representation(self, value: Any) -> str:
        return plain(value)


class AccountDetail(serializers.ModelSerializer):
    """An account at a provider, without its key."""

    id = serializers.UUIDField(source="public_id", read_only=True)
    has_key = serializers.BooleanField(read_only=True)
    daily_cap = USD(help_text="USD that pods may commit in a UTC day.")
    monthly_cap = USD(help_text="The same for a UTC month.")

    class Meta:
        model = ProviderAccount
        fields = [
            "id", "name", "kind", "base_url", "enabled", "has_key", "daily_cap", "monthly_cap", "max_pods",
            "accepts_no_provider_clock", "listed_at", "trouble",
        ]  # fmt: skip
        read_only_fields = fields


class KeyRequest(StrictSerializer):
    """A provider's key: stored sealed, never shown again."""

    key = serializers.CharField(write_only=True, trim_whitespace=False, max_length=1000)


class AccountRequest(KeyRequest):
    """A new account at a provider."""

    name = serializers.CharField(max_length=100)
    kind = serializers.ChoiceField(choices=ProviderAccount._meta.get_field("kind").choices or [])
    base_url = serializers.CharField(required=False, allow_blank=True, max_length=300)
    daily_cap = serializers.DecimalField(**MONEY, help_text="USD that pods may commit in a UTC day.")
    monthly_cap = serializers.DecimalField(**MONEY, help_text="The same for a UTC month.")
    max_pods = serializers.IntegerField(required=False, min_value=0, max_value=1000, help_text="Default 1.")
    accepts_no_provider_clock = serializers.BooleanField(
        required=False, help_text="Rent at a provider that ends nothing by itself."
    )


class OfferDetail(serializers.Serializer):
    """What a provider has free now."""

    account = serializers.CharField()
    id = serializers.CharField()
    gpu_type = serializers.CharField()
    gpu_count = serializers.IntegerField()
    smallest = serializers.IntegerField(help_text="The fewest GPUs that can be rented of it.")
    price_per_gpu_hour = USD(help_text="USD.")
    price_per_hour = USD(help_text="USD, all of it.")
    provider = serializers.CharField()


class PodRequest(StrictSerializer):
    """A pod to rent. Both caps are required; nothing is rented above them."""

    account = serializers.CharField(help_text="Name or id of an account.")
    image = serializers.CharField(max_length=400, help_text="Without tag and digest.")
    digest = serializers.CharField(max_length=71, help_text="sha256: and 64 hexadecimal digits.")
    tag = serializers.CharField(
        required=False, allow_blank=True, max_length=128, help_text="Information only."
    )
    max_lifetime_hours = serializers.FloatField(help_text="At least 1; cut to whole hours.")
    max_price_per_hour = serializers.DecimalField(**MONEY, help_text="USD per GPU.")
    gpu_type = serializers.CharField(required=False, allow_blank=True, max_length=100)
    gpu_count = serializers.IntegerField(required=False, min_value=1, max_value=64)
    offer_id = serializers.CharField(
        required=False, allow_blank=True, max_length=200, help_text="Only this offer, if it keeps the caps."
    )
    env = serializers.DictField(child=serializers.CharField(allow_blank=True), required=False)
    ports = serializers.ListField(child=serializers.IntegerField(), required=False, max_length=20)
    ssh_keys = serializers.ListField(child=serializers.CharField(), required=False, max_length=20)
    startup_command = serializers.CharField(required=False, allow_blank=True, max_length=4000)

    def wanted(self) -> dict[str, Any]:
        """The fields of an `InstanceSpec`; the caps as they were sent, so that the rules judge what was meant."""
        found = {name: value for name, value in self.validated_data.items() if name != "account"}
        found |= {name: self.initial_data[name] for name in ("max_lifetime_hours", "max_price_per_hour")}
        return found | {name: tuple(found[name]) for name in ("ports", "ssh_keys") if name in found}


class PodListing(serializers.ModelSerializer):
    """A pod."""

    id = serializers.UUIDField(source="public_id", read_only=True)
    account = serializers.CharField(source="account.name", read_only=True)
    provider = serializers.CharField(source="account.kind", read_only=True)
    price_cap = USD(read_only=True, help_text="USD per GPU and hour.")
    committed_cost = USD(read_only=True, help_text="USD.")
    price_per_hour = USD(read_only=True, allow_null=True, help_text="USD, all of it, as the provider says.")
    cost_so_far = serializers.SerializerMethodField(help_text="USD that it can have cost at most.")

    class Meta:
        model = Pod
        fields = [
            "id", "name", "account", "provider", "status", "told", "end_reason", "gpu_count", "price_cap",
            "lifetime_hours", "committed_cost", "price_per_hour", "cost_so_far", "provider_id", "created_at",
            "requested_at", "running_at", "deadline", "end_asked_at", "finished_at", "alarm_at", "last_error",
        ]  # fmt: skip
        read_only_fields = fields

    @extend_schema_field({"type": "string"})
    def get_cost_so_far(self, pod: Pod) -> str:
        now: datetime = self.context["now"]
        return plain(cost_so_far(pod, now))


class PodEventDetail(serializers.ModelSerializer):
    """One thing that happened to a pod."""

    class Meta:
        model = PodEvent
        fields = ["kind", "message", "created_at"]
        read_only_fields = fields


class PodDetail(PodListing):
    """A pod and its history."""

    events = PodEventDetail(many=True, read_only=True)

    class Meta(PodListing.Meta):
        fields = [
            *PodListing.Meta.fields,
            *("seen_at", "absent_answers", "terminate_calls", "terminate_after", "events"),
        ]
        read_only_fields = fields
