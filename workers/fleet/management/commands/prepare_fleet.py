"""`manage.py prepare_fleet`: an environment that the fleet serves, and owners whose agents can start at once."""

import base64
import json
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from environments.models import EngineKind, Environment, Resource
from jobs.billing.models import Account
from workers.fleet.client import bind
from workers.fleet.models import Owner, OwnerKey
from workers.fleet.registration import retire
from workers.fleet.setup import create_fleet_environment, create_owner
from workers.fleet.signing import key_text

SLUG = "shared"
BINDING_SECONDS = 7 * 24 * 3600
POLL_SECONDS = 0.5


class Command(BaseCommand):
    help = (
        "Prepare an example fleet: the environment fleet/shared, audited on the largest environment of ours, and for"
        " each owner an account, keys, a binding and the settings of an agent. May be repeated: keys are new then, and"
        " earlier workers of these owners are retired."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("owners", nargs="+", help="Names of the owners.")
        parser.add_argument("--site-url", required=True, help="Where agents reach the site.")
        parser.add_argument("--output", type=Path, required=True, help="A folder for keys and settings.")
        parser.add_argument(
            "--lies", default="", help="The owner whose agent alters its outputs, for a demo."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if not settings.FLEET_ENABLED:
            raise CommandError("The fleet is off: set FLEET_ENABLED=true.")
        try:
            environment = provide_environment()
        except ValidationError as error:
            raise CommandError("; ".join(error.messages)) from error
        amounts = dict(Resource.objects.filter(environment=environment).values_list("kind", "total"))
        for number, name in enumerate(options["owners"]):
            lies = name == options["lies"]
            prepare_agent(options["output"] / name, name, number, options["site_url"], amounts, lies=lies)
            self.stdout.write(f"{name}: {options['output'] / name / 'agent.yaml'}")


def provide_environment() -> Environment:
    """The environment fleet/shared, as large as the one on which it is audited. Raises ValidationError."""
    there = Environment.objects.filter(engine__kind=EngineKind.FLEET, slug=SLUG).first()
    if there is not None:
        return there
    resources = Resource.objects.filter(environment__engine__kind=EngineKind.DOCKER, kind="ram")
    largest = resources.order_by("-total").select_related("environment__engine").first()
    if largest is None:
        raise ValidationError(
            "There is no environment of ours to audit on: manage.py prepare_demo makes some."
        )
    rows = Resource.objects.filter(environment=largest.environment).values_list("kind", "total")
    return create_fleet_environment(
        SLUG,
        largest.environment,
        most={kind: total for kind, total in rows if kind in ("cpu", "ram", "disk")},
        policy={},
        description="Machines of others; results count when independent owners agree.",
        free=dict(rows.filter(kind__in=("cpu", "ram", "disk"))),
    )


def prepare_agent(
    folder: Path, name: str, number: int, site_url: str, amounts: dict[str, int], *, lies: bool
) -> None:
    """Keys, binding and settings of one owner's agent in `folder`; the owner is made when there is none."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    owner_key, worker_key = provide_owner(name), Ed25519PrivateKey.generate()
    now = int(time.time())
    statement = {
        "owner_key": key_text(owner_key),
        "worker_key": key_text(worker_key),
        "serial": "1",
        "not_before": now - 60,
        "not_after": now + BINDING_SECONDS,
        "capabilities": {**{kind: amounts[kind] for kind in ("cpu", "ram", "disk")}, "slots": 1},
        "provider": "",
        "instance": "",
    }
    for file, private in (("owner.key", owner_key), ("worker.key", worker_key)):
        (folder / file).touch(mode=0o600)
        raw = private.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
        (folder / file).write_text(base64.b64encode(raw).decode())
    (folder / "binding.json").write_text(json.dumps(bind(owner_key, settings.SITE_ID, statement)))
    told = {
        "site_url": site_url,
        "site_id": settings.SITE_ID,
        "key_file": str(folder / "worker.key"),
        "binding_file": str(folder / "binding.json"),
        "state_dir": str(folder / "state"),
        "name": f"{settings.SITE_ID[:9]}a{number}",
        "engine": settings.DOCKER_HOST,
        "launcher": settings.LAUNCHER,
        "image": settings.SANDBOX_IMAGE,
        "cores": list(range(amounts["cpu"])),
        "first_uid": 2_100_000_000 + 1000 * number,
        "poll": POLL_SECONDS,
        "alter_outputs": lies,
    }
    (folder / "agent.yaml").write_text(yaml.safe_dump(told, sort_keys=False))


def provide_owner(name: str) -> Ed25519PrivateKey:
    """A new key of the owner of this name, whose account is made when there is none."""
    key = Ed25519PrivateKey.generate()
    account, _ = Account.objects.get_or_create(name=f"owner {name}")
    owner = Owner.objects.filter(account=account).first()
    if owner is None:
        create_owner(account, [key_text(key)])
    else:
        OwnerKey.objects.create(owner=owner, key=key_text(key))
        for worker in owner.workers.all():  # its key is lost now
            retire(worker)
    return key
