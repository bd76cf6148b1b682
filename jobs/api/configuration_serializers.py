"""What an import takes and answers."""

from collections.abc import Iterator, Mapping
from typing import Any

from django.core.exceptions import ValidationError as DjangoValidationError
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from compute_site.core.api import StrictSerializer
from environments.importing import Plan, check_tokens
from environments.importing.plan import ACTIVATED, CHANGED, CREATED, KEPT, LEFT, RETIRED
from jobs.api.pointers import pointer_of

KEYS = {
    "created": CREATED,
    "changed": CHANGED,
    "kept": KEPT,
    "retired": RETIRED,
    "left_alone": LEFT,
    "activated": ACTIVATED,
}


@extend_schema_field({"type": ["array", "object"], "items": {"type": "object"}})
class ConfigurationField(serializers.Field):
    """Any JSON; the import checks it."""

    def to_internal_value(self, data: Any) -> Any:
        return data


class Flag(serializers.BooleanField):
    """true or false; no text or number that looks like it."""

    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            raise serializers.ValidationError("true or false belongs here.")
        return data


class ImportRequest(StrictSerializer):
    """A configuration of Ocean Node, in any of its forms, and how to import it."""

    configuration = ConfigurationField(help_text="The list of engines as JSON, or one engine.")
    engine = serializers.CharField(
        required=False,
        allow_blank=True,
        help_text="The engine that it is for; none = the one with its endpoint, or the only one.",
    )
    host = serializers.CharField(
        required=False,
        allow_blank=True,
        help_text="The engine is on this host; a missing engine is made there, disabled.",
    )
    replace = Flag(required=False, help_text="Retire the engine's environments that it does not name.")
    activate = Flag(required=False, help_text="Activate a disabled engine afterwards.")
    dry_run = Flag(required=False, help_text="Answer the plan and write nothing.")
    tokens = serializers.DictField(
        child=serializers.CharField(),
        required=False,
        help_text="Fee token by chain id, for prices that name none.",
    )

    def validate_tokens(self, tokens: dict[str, str]) -> dict[str, str]:
        """Chain ids are numbers."""
        try:
            check_tokens(tokens)
        except DjangoValidationError as error:
            raise serializers.ValidationError(error.messages) from error
        return tokens


class ValueDetail(serializers.Serializer):
    """One value, as the export writes it; null = there is, or was, none."""

    path = serializers.CharField()
    before = serializers.CharField(allow_null=True)
    after = serializers.CharField(allow_null=True)


class ChangeDetail(serializers.Serializer):
    """One engine or environment."""

    kind = serializers.CharField(help_text="engine or environment")
    name = serializers.CharField()
    pointer = serializers.CharField(help_text="Where the request speaks of it, or of its engine.")
    why = serializers.CharField(allow_blank=True)
    values = ValueDetail(many=True)


class NoteDetail(serializers.Serializer):
    """What should be known about a value."""

    pointer = serializers.CharField()
    message = serializers.CharField()


class PlanDetail(serializers.Serializer):
    """What was done, or would be."""

    applied = serializers.BooleanField(help_text="Whether it was written: false for a dry run.")
    changes_anything = serializers.BooleanField()
    created = ChangeDetail(many=True)
    changed = ChangeDetail(many=True)
    kept = ChangeDetail(many=True)
    retired = ChangeDetail(many=True)
    left_alone = ChangeDetail(many=True, help_text="Not named, and not retired since replace is off.")
    activated = ChangeDetail(many=True)
    notes = NoteDetail(many=True, help_text="Values that are dropped or capped, unknown keys, warnings.")


def plan_detail(plan: Plan, configuration: Any) -> Mapping[str, Any]:
    """The plan as PlanDetail tells it; pointers lead into the request that had this configuration."""
    shown = {
        "applied": plan.applied,
        "changes_anything": plan.changes_anything,
        **{key: list(_changes(plan, what, configuration)) for key, what in KEYS.items()},
        "notes": [
            {"pointer": pointer_of(note.path, configuration), "message": note.message} for note in plan.notes
        ],
    }
    return PlanDetail(shown).data


def _changes(plan: Plan, what: str, configuration: Any) -> Iterator[dict[str, Any]]:
    for change in plan.changes:
        if change.what == what:
            yield {
                "kind": change.kind,
                "name": change.name,
                "pointer": pointer_of(change.path, configuration),
                "why": change.why,
                "values": change.values,
            }
