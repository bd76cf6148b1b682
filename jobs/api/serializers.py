"""What a client reads of a job."""

import hashlib
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from compute_site.core.api import refusal
from compute_site.core.scopes import Scope
from jobs.api.account_serializers import CostDetail
from jobs.billing.charges import money_text
from jobs.billing.cost import cost
from jobs.choice import told_to
from jobs.end_reasons import END_REASONS
from jobs.models import Artifact, Attempt, Job, JobEvent
from jobs.obstacles import engine_reasons
from jobs.pending import estimated_wait, pending_reason
from jobs.quoting import Quote
from jobs.spec_function import bundle_of

TEXT_OR_NULL = {"type": ["string", "null"]}
AMOUNTS = {"type": "object", "additionalProperties": {"type": "integer"}}
OBJECT = {"type": "object", "additionalProperties": {}}


class EnvironmentName(serializers.Serializer):
    """Which environment, in short."""

    id = serializers.UUIDField(source="public_id")
    name = serializers.CharField(source="__str__", help_text="engine/slug")


class NotChosen(serializers.Serializer):
    """An environment that was not chosen."""

    environment = serializers.CharField(help_text="engine/slug")
    why_not = serializers.CharField()


class Chosen(serializers.Serializer):
    """Which environment a job's selector came to; frozen with the terms."""

    environment = serializers.CharField(help_text="engine/slug")
    because = serializers.CharField()
    others = NotChosen(many=True)
    not_shown = serializers.IntegerField(help_text="How many others there were that are not open to you.")

    def to_representation(self, job: Job) -> Any:
        """As whoever reads may know it."""
        return told_to(self.context["request"].user, job)


class JobListing(serializers.ModelSerializer):
    """A job in a list."""

    id = serializers.UUIDField(source="public_id", read_only=True)
    account = serializers.UUIDField(source="account.public_id", read_only=True)
    environment = EnvironmentName(read_only=True)

    class Meta:
        model = Job
        fields = [
            "id", "account", "environment", "tier", "status", "phase", "labels", "max_duration", "created_at",
            "started_at", "finished_at", "end_reason", "exit_code", "run_seconds",
        ]  # fmt: skip
        read_only_fields = fields


class AttemptDetail(serializers.ModelSerializer):
    """One try of a job."""

    id = serializers.UUIDField(source="public_id", read_only=True)
    engine = serializers.CharField(source="engine.name", read_only=True)

    class Meta:
        model = Attempt
        fields = [
            "id", "number", "engine", "status", "image_id", "created_at", "started_at", "exited_at", "finished_at",
            "stop_reason", "end_reason", "end_detail", "exit_code",
        ]  # fmt: skip
        read_only_fields = fields


class JobDetail(JobListing):
    """A job with everything but its log, events and outputs."""

    pending_reason = serializers.SerializerMethodField(
        help_text="What a queued job waits for, or one of the fleet that no remote worker has yet."
    )
    estimated_wait = serializers.SerializerMethodField(
        help_text="Seconds until a queued job starts at the latest, by the deadlines of others; null = unknown."
    )
    chosen = Chosen(
        source="*", read_only=True, allow_null=True, help_text="Null for a job that names its environment."
    )
    end_message = serializers.SerializerMethodField(help_text="The end reason in words.")
    resources = serializers.SerializerMethodField(help_text="What it gets: cores, MiB, devices, counts.")
    spec = serializers.SerializerMethodField(
        help_text="The job as asked; of inputs and bundle only the size."
    )
    terms = serializers.SerializerMethodField(help_text="As admitted: prices and limits.")
    cost = serializers.SerializerMethodField(help_text="None: it costs nothing by its terms.")
    attempts = AttemptDetail(many=True, read_only=True)

    class Meta(JobListing.Meta):
        fields = [
            *JobListing.Meta.fields, "pending_reason", "estimated_wait", "chosen", "end_message", "end_detail", "resources", "usage", "cost", "spec",
            "terms", "image_id", "attempts_made", "max_attempts", "not_before", "queue_expires_at",
            "cancel_requested_at", "result", "manifest", "manifest_sha256", "refused_outputs", "storage_expires_at",
            "storage_purged_at", "attempts",
        ]  # fmt: skip
        read_only_fields = fields

    @extend_schema_field(TEXT_OR_NULL)
    def get_pending_reason(self, job: Job) -> str | None:
        return pending_reason(job)

    @extend_schema_field({"type": ["integer", "null"]})
    def get_estimated_wait(self, job: Job) -> int | None:
        return estimated_wait(job)

    @extend_schema_field(TEXT_OR_NULL)
    def get_end_message(self, job: Job) -> str | None:
        return END_REASONS[job.end_reason].message if job.end_reason else None

    @extend_schema_field(AMOUNTS)
    def get_resources(self, job: Job) -> Any:
        return job.terms["resources"]

    @extend_schema_field(CostDetail(allow_null=True))
    def get_cost(self, job: Job) -> Any:
        found = cost(job, timezone.now())
        return CostDetail(found).data if found is not None else None

    @extend_schema_field(OBJECT)
    def get_spec(self, job: Job) -> Any:
        inputs = [{"name": name, "size": len(text.encode())} for name, text in job.spec["inputs"].items()]
        return {**job.spec, "inputs": inputs, **_function(job.spec)}

    @extend_schema_field(OBJECT)
    def get_terms(self, job: Job) -> Any:
        return {name: value for name, value in job.terms.items() if name not in ("resources", "kinds")}


def _function(spec: dict[str, Any]) -> dict[str, Any]:
    """The function of a function job, with its bundle's size and sha256 in place of the bundle."""
    function = spec.get("function")
    if function is None:
        return {}
    bundle = bundle_of(function)
    told = {"size": len(bundle), "sha256": hashlib.sha256(bundle).hexdigest()}
    return {"function": {**function, "bundle": told}}


class JobAdmitted(JobListing):
    """A job just admitted: costs no further look into the database."""

    pending_reason = serializers.SerializerMethodField(
        help_text="What of the engine keeps it waiting, if anything."
    )
    chosen = Chosen(
        source="*", read_only=True, allow_null=True, help_text="Null for a job that names its environment."
    )
    resources = serializers.SerializerMethodField(help_text="What it gets: cores, MiB, devices, counts.")

    class Meta(JobListing.Meta):
        fields = [*JobListing.Meta.fields, "pending_reason", "chosen", "resources", "queue_expires_at"]
        read_only_fields = fields

    @extend_schema_field(TEXT_OR_NULL)
    def get_pending_reason(self, job: Job) -> str | None:
        # The database's time comes with the context: a worker's life is not judged by a clock of ours.
        return "; ".join(engine_reasons(job.environment.engine, self.context["now"])) or None

    @extend_schema_field(AMOUNTS)
    def get_resources(self, job: Job) -> Any:
        return job.terms["resources"]


class QuoteDetail(serializers.Serializer):
    """What a job would get, cost and wait for. Where nothing can be agreed, only the refusal is told."""

    refusal = serializers.SerializerMethodField(
        help_text="The problem that a submit would answer with; null = it would be admitted."
    )
    environment = EnvironmentName(source="job.environment", allow_null=True, default=None)
    chosen = Chosen(source="job", allow_null=True, default=None)
    resources = serializers.SerializerMethodField(help_text="What it gets: cores, MiB, devices, counts.")
    max_duration = serializers.IntegerField(source="job.max_duration", allow_null=True, default=None)
    currency = serializers.SerializerMethodField(help_text="Null: it costs nothing.")
    price_per_minute = serializers.SerializerMethodField(help_text="Decimal, of all its resources together.")
    maximum_cost = serializers.SerializerMethodField(help_text="Decimal: what is held at its admission.")
    pending_reason = serializers.CharField(allow_null=True, help_text="What it would wait for.")
    estimated_wait = serializers.IntegerField(allow_null=True, help_text="Seconds; null = unknown.")

    @extend_schema_field({**OBJECT, "type": ["object", "null"]})
    def get_refusal(self, quote: Quote) -> Any:
        return refusal(quote.refusal) if quote.refusal is not None else None

    @extend_schema_field({**AMOUNTS, "type": ["object", "null"]})
    def get_resources(self, quote: Quote) -> Any:
        return quote.job.terms["resources"] if quote.job else None

    @extend_schema_field(TEXT_OR_NULL)
    def get_currency(self, quote: Quote) -> str | None:
        return (quote.job.terms["currency"] or None) if quote.job else None

    @extend_schema_field(TEXT_OR_NULL)
    def get_price_per_minute(self, quote: Quote) -> str | None:
        return money_text(quote.price_per_minute) if quote.job else None

    @extend_schema_field(TEXT_OR_NULL)
    def get_maximum_cost(self, quote: Quote) -> str | None:
        return money_text(quote.maximum_cost) if quote.job else None


class EventDetail(serializers.ModelSerializer):
    """One thing that happened to a job."""

    attempt = serializers.IntegerField(source="attempt.number", read_only=True, allow_null=True, default=None)

    class Meta:
        model = JobEvent
        fields = ["id", "kind", "message", "data", "attempt", "created_at"]
        read_only_fields = fields


class ArtifactDetail(serializers.ModelSerializer):
    """One stored output."""

    class Meta:
        model = Artifact
        fields = ["path", "size", "sha256"]
        read_only_fields = fields


class NewToken(serializers.Serializer):
    """A token, shown this once."""

    token = serializers.CharField()
    name = serializers.CharField()
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=Scope.choices))
    expiry = serializers.DateTimeField(allow_null=True)
