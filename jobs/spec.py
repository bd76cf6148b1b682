"""The shape of a job, version 1: what a client may ask, checked strictly and without a database.

Faults are raised together, as one ValidationError whose keys are paths into the request (`inputs/0/name`).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import UUID

from compute_site.core.paths import is_below
from jobs import spec_fields as fields
from jobs import spec_function, spec_selector

SPEC_VERSION = 1


@dataclass(frozen=True, slots=True)
class Spec:
    """A job as asked. Durations in seconds, memory and disk in MiB; None and empty mean “not asked”.

    What runs is `entrypoint` (or the image's) followed by `command` and `args` (or the image's command); or, in the
    site's sandbox image, the `function` of a bundle: bundle, entry, role and args.
    """

    environment: str | None = None  # public id, or "engine/slug"; None: the selector chooses
    image: str | None = None  # None: the site's own sandbox image
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)  # name → text
    outputs: tuple[str, ...] | None = None  # declared paths; None: everything in the outputs folder is taken
    resources: Mapping[str, int] = field(default_factory=dict)
    max_duration: int | None = None
    max_queue_wait: int | None = None
    tier: str = "paid"
    account: UUID | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    function: Mapping[str, Any] | None = None
    selector: Mapping[str, Any] | None = None  # labels, architecture, max_price_per_minute, currency

    def as_json(self) -> dict[str, Any]:
        """What is stored in `Job.spec`; `from_json` reads it back."""
        data = asdict(self)
        data["account"] = str(self.account) if self.account else None
        for name in ("entrypoint", "command", "args"):
            data[name] = list(data[name])
        data["outputs"] = None if self.outputs is None else list(self.outputs)
        for name in ("function", "selector"):
            if data[name] is None:  # as before there were any: an idempotency key's digest stays what it was
                del data[name]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Spec":
        """From a stored `Job.spec`, without checking it again."""
        values = dict(data)
        values["account"] = UUID(values["account"]) if values["account"] else None
        for name in ("entrypoint", "command", "args"):
            values[name] = tuple(values[name])
        values["outputs"] = None if values["outputs"] is None else tuple(values["outputs"])
        return cls(**values)

    @property
    def declared(self) -> tuple[str, ...] | None:
        """The paths of the outputs that are taken, by the role where it fixes them; None: everything."""
        return (
            self.outputs if self.function is None else spec_function.outputs_of(self.function, self.outputs)
        )

    def declares(self, path: str) -> bool:
        """Whether the output at `path` is taken: declared itself, or below a declared folder, or none is declared."""
        declared = self.declared
        return declared is None or is_below(path, declared)


READERS = {
    "environment": fields.environment,
    "image": fields.image,
    "entrypoint": fields.arguments,
    "command": fields.arguments,
    "args": fields.arguments,
    "env": fields.variables,
    "inputs": fields.inputs,
    "outputs": fields.outputs,
    "resources": fields.resources,
    "max_duration": fields.duration,
    "max_queue_wait": fields.duration,
    "tier": fields.tier,
    "account": fields.account,
    "labels": fields.labels,
    "function": spec_function.read_function,
    "selector": spec_selector.read_selector,
}
NULLABLE = frozenset(
    {"environment", "image", "outputs", "max_duration", "max_queue_wait", "account", "function", "selector"}
)


def read_spec(data: object) -> Spec:
    """A request body as a Spec. Raises ValidationError naming every wrong or unknown field; nothing is coerced."""
    faults = fields.Faults()
    if not isinstance(data, Mapping):
        faults.add("", "A job is an object.")
        raise faults.error()
    faults.unknown(data, READERS)
    named = [name for name in ("environment", "selector") if data.get(name) is not None]
    if not named:
        faults.add("environment", "Name an environment, or give a selector.", code="required")
    elif len(named) == 2:
        faults.add("selector", "Give either an environment or a selector, not both.")
    values = {}
    for name, reader in READERS.items():
        if name in data and not (data[name] is None and name in NULLABLE):
            values[name] = reader(data[name], name, faults)
    fields.check_argument_size(values, faults)
    spec_function.check_against(values, faults)
    if faults:
        raise faults.error()
    return Spec(**values)
