"""The shapes of the fleet's requests: fields and bounds; what they mean is checked by the rules."""

from typing import Any

from rest_framework import serializers

from environments.models import ResourceKind
from workers.fleet.manifest import LOG_BYTES

AMOUNTS = {*ResourceKind.values, "slots"}
MAX_SLOTS = 64
MAX_DEVICES = 64


class Statement(serializers.Serializer):
    """A binding as its owner signed it; times in seconds since the epoch."""

    owner_key = serializers.CharField(max_length=80)
    worker_key = serializers.CharField(max_length=80)
    serial = serializers.CharField(max_length=64)
    not_before = serializers.IntegerField(min_value=0, max_value=2**33)
    not_after = serializers.IntegerField(min_value=0, max_value=2**33)
    capabilities = serializers.DictField(child=serializers.IntegerField(min_value=0, max_value=2**31))
    provider = serializers.CharField(max_length=64, allow_blank=True)
    instance = serializers.CharField(max_length=128, allow_blank=True)

    def to_internal_value(self, data: Any) -> Any:
        """Whatever else was signed is not understood, so it is refused."""
        if isinstance(data, dict) and (unknown := set(data) - set(self.fields)):
            raise serializers.ValidationError(dict.fromkeys(sorted(map(str, unknown)), "Unknown field."))
        return super().to_internal_value(data)

    def validate_capabilities(self, value: dict[str, int]) -> dict[str, int]:
        """Amounts by kind of resource, and slots."""
        if unknown := set(value) - AMOUNTS:
            raise serializers.ValidationError(f"Unknown: {', '.join(sorted(unknown))}.")
        if not 1 <= value.get("slots", 1) <= MAX_SLOTS:
            raise serializers.ValidationError(f"slots is from 1 to {MAX_SLOTS}.")
        return value


class Registration(serializers.Serializer):
    """A worker's registration around its owner's binding."""

    binding = Statement()
    signature = serializers.CharField(max_length=128)
    version = serializers.CharField(max_length=64, allow_blank=True, default="")


class DeviceFacts(serializers.Serializer):
    """A device as NVML reports it on the worker's machine."""

    uuid = serializers.CharField(max_length=200)
    model = serializers.CharField(max_length=200, allow_blank=True, default="")
    memory_mib = serializers.IntegerField(min_value=0, max_value=2**31, default=0)
    driver_version = serializers.CharField(max_length=200, allow_blank=True, default="")


class Heartbeat(serializers.Serializer):
    """A sign of life, with the worker's word on its machine."""

    version = serializers.CharField(max_length=64, allow_blank=True, default="")
    health = serializers.DictField(child=serializers.CharField(max_length=1000), default=dict)
    devices = serializers.ListField(child=DeviceFacts(), max_length=MAX_DEVICES, default=list)

    def validate_health(self, value: dict[str, str]) -> dict[str, str]:
        """Few and short names, as they are shown."""
        if len(value) > 2 * MAX_DEVICES or any(len(name) > 200 or "\0" in name for name in value):
            raise serializers.ValidationError(
                f"At most {2 * MAX_DEVICES} entries, their names at most 200 characters without NUL."
            )
        return value


class Pull(serializers.Serializer):
    """How many replicas the worker can take now."""

    limit = serializers.IntegerField(min_value=0, max_value=MAX_SLOTS, default=1)


class Progress(serializers.Serializer):
    """That it goes on, and the end of its log."""

    token = serializers.UUIDField()
    note = serializers.CharField(max_length=200, allow_blank=True, default="")
    log = serializers.CharField(max_length=16_384, allow_blank=True, trim_whitespace=False, default="")


class Proof(serializers.Serializer):
    """The worker's signature under its result."""

    signature = serializers.CharField(max_length=128)
    expires = serializers.IntegerField(min_value=0, max_value=2**33)


class StreamLog(serializers.Serializer):
    """The beginning of one stream in base64, and how many bytes were cut from its end."""

    cut = serializers.IntegerField(min_value=0, max_value=2**53, default=0)

    def get_fields(self) -> dict[str, Any]:
        """`data` too: a serializer has an attribute of that name already."""
        data = serializers.CharField(allow_blank=True, max_length=4 * (LOG_BYTES // 3 + 1))
        return {"data": data, **super().get_fields()}


class Log(serializers.Serializer):
    """The log of a run."""

    stdout = StreamLog(required=False)
    stderr = StreamLog(required=False)


class Result(serializers.Serializer):
    """Success with manifest, proof, contents (base64 by sha256) and log, or failure with its reason."""

    token = serializers.UUIDField()
    success = serializers.BooleanField()
    manifest = serializers.JSONField(required=False)
    proof = Proof(required=False)
    contents = serializers.DictField(child=serializers.CharField(allow_blank=True), default=dict)
    log = Log(default=dict)
    run_seconds = serializers.FloatField(min_value=0, max_value=10**8, required=False, allow_null=True)
    reason = serializers.CharField(max_length=64, default="failed")
    detail = serializers.CharField(max_length=4000, allow_blank=True, default="")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """A success without manifest or proof is none."""
        if attrs["success"]:
            missing = [name for name in ("manifest", "proof") if attrs.get(name) is None]
            if missing:
                raise serializers.ValidationError(dict.fromkeys(missing, "This field is required."))
        return attrs
