"""What a client sends, for the schema: `jobs.spec` is what checks it."""

from rest_framework import serializers

from compute_site.core.scopes import Scope
from environments.models import Tier
from jobs.spec_function import ROLES


class InputRequest(serializers.Serializer):
    """A small file, given inline."""

    name = serializers.RegexField(r"^[A-Za-z0-9._-]{1,128}$", help_text="Its name below /data/inputs.")
    text = serializers.CharField(
        allow_blank=True, help_text="Its content; at most 1 MiB for all inputs together."
    )


class FunctionRequest(serializers.Serializer):
    """A function of a bundle, run in the site's sandbox image."""

    bundle = serializers.CharField(help_text="A tar.gz or zip of Python files, base64; at most 1 MiB.")
    entry = serializers.CharField(max_length=255, help_text="module:function")
    role = serializers.ChoiceField(
        choices=list(ROLES),
        required=False,
        help_text="Fixes the outputs. plain (default): as declared; train, aggregate: model; evaluate: scores.",
    )
    args = serializers.DictField(
        child=serializers.JSONField(),
        required=False,
        help_text="Handed to the function; evaluate needs candidates, a list of inputs.",
    )


class SelectorRequest(serializers.Serializer):
    """What an environment must have; the resources are those of the job."""

    labels = serializers.DictField(
        child=serializers.CharField(), required=False, help_text="All of these, with these texts."
    )
    architecture = serializers.CharField(
        required=False, allow_null=True, help_text="Of its machine, for example amd64; none = any."
    )
    max_price_per_minute = serializers.CharField(
        required=False,
        allow_null=True,
        help_text="Decimal; most that the job may cost per minute. None = any price.",
    )
    currency = serializers.CharField(
        required=False, help_text="Whose prices count: credit (default), or chain id and token address."
    )


class JobRequest(serializers.Serializer):
    """A job, version 1: a container's command, or a function. Unknown fields are refused."""

    environment = serializers.CharField(
        required=False,
        allow_null=True,
        help_text="Id of an environment, or “engine/slug”. Either this or a selector.",
    )
    selector = SelectorRequest(
        required=False,
        allow_null=True,
        help_text="In place of an environment: the cheapest that matches and can start now is chosen, else the one with"
        " the shortest line.",
    )
    image = serializers.CharField(
        required=False,
        allow_null=True,
        max_length=512,
        help_text="Image to run; none = the site's sandbox image.",
    )
    entrypoint = serializers.ListField(
        child=serializers.CharField(allow_blank=True),
        required=False,
        help_text="Replaces the image's entrypoint and command.",
    )
    command = serializers.ListField(
        child=serializers.CharField(allow_blank=True),
        required=False,
        help_text="What runs; a list, never split on spaces.",
    )
    args = serializers.ListField(
        child=serializers.CharField(allow_blank=True), required=False, help_text="Follow the command."
    )
    function = FunctionRequest(
        required=False, allow_null=True, help_text="In place of image, entrypoint, command and args."
    )
    env = serializers.DictField(
        child=serializers.CharField(allow_blank=True), required=False,
        help_text="Variables; LD_*, GLIBC_*, PYTHON*, NVIDIA_* and DOCKER_* are refused.",
    )  # fmt: skip
    inputs = InputRequest(many=True, required=False)
    outputs = serializers.ListField(
        child=serializers.CharField(), required=False, allow_null=True,
        help_text="Files or folders to keep, below /data/outputs; none = everything.",
    )  # fmt: skip
    resources = serializers.DictField(
        child=serializers.JSONField(), required=False,
        help_text="Amount by resource: cores, MiB (ram and disk also as “4GiB”), devices, counts.",
    )  # fmt: skip
    max_duration = serializers.IntegerField(
        required=False,
        allow_null=True,
        min_value=1,
        help_text="Longest run in seconds; none = the longest allowed.",
    )
    max_queue_wait = serializers.IntegerField(
        required=False, allow_null=True, min_value=1, help_text="Longest wait in the queue in seconds."
    )
    tier = serializers.ChoiceField(choices=Tier.choices, required=False, help_text="paid (default) or free.")
    account = serializers.UUIDField(required=False, allow_null=True, help_text="None = your only account.")
    labels = serializers.DictField(
        child=serializers.CharField(allow_blank=True),
        required=False,
        help_text="At most 32 short words of yours.",
    )


class TokenRequest(serializers.Serializer):
    """What a new token is called, what it is good for, and how long."""

    name = serializers.CharField(
        required=False, allow_blank=True, max_length=100, help_text="What it is for, in your own words."
    )
    scopes = serializers.ListField(
        child=serializers.ChoiceField(
            choices=Scope.choices,
            error_messages={
                "invalid_choice": f"“{{input}}” is no scope; there are {', '.join(Scope.values)}."
            },
        ),
        required=False,
        allow_empty=False,
        help_text="At least one; none given = read and submit.",
    )
    expires_in = serializers.IntegerField(
        required=False,
        allow_null=True,
        min_value=60,
        max_value=10 * 366 * 24 * 3600,
        help_text="Seconds; none = for ever.",
    )
