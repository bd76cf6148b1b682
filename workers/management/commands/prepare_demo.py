"""`manage.py prepare_demo`: this machine's engine, two environments on it, an administrator, a client with a token."""

import json
import os
import secrets
from argparse import ArgumentParser
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from compute_site.core.errors import SiteError
from compute_site.core.models import save_clean
from compute_site.core.scopes import USUAL, Scope
from environments.editing import activate_engine
from environments.importing import Choice, import_configuration
from environments.management.commands.import_environments import from_settings
from environments.models import Engine, EngineState, Environment, Host
from environments.setup import create_environment
from jobs.billing.ledger import top_up
from jobs.billing.models import Account, Membership, Role
from jobs.models import Token
from jobs.tokens import make_token
from workers.management.commands.detect_host import describe
from workers.registration import register_engine

ADMIN = "admin"
CLIENT = "demo"
TOKEN_LIFE = timedelta(days=1)
# Per minute: of a core, and of a MiB of memory. Disk costs nothing.
CREDIT = Decimal(100)
PRICES = {"cpu": Decimal("0.01"), "ram": Decimal("0.000002")}


class Command(BaseCommand):
    help = (
        "Prepare an example site: the engine at DOCKER_HOST, two environments that share its host, an administrator"
        " with a one-time password, a client with a token. May be repeated: what is there stays as it is."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--engine", default="local", help="Name of the engine (default: local).")
        parser.add_argument("--host", default="local", help="Name of this machine (default: local).")
        parser.add_argument(
            "--disk-mib",
            type=int,
            help="Disk of a new machine whose engine's data folder cannot be seen from here.",
        )
        parser.add_argument(
            "--output", type=Path, help="Write the names and secrets (JSON) here, not to the terminal."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            if options["disk_mib"] and not Host.objects.filter(name=options["host"]).exists():
                save_clean(Host(name=options["host"], disk_mib=options["disk_mib"]))
            engine, warnings = register_engine(options["engine"], settings.DOCKER_HOST, options["host"])
            describe(self, engine, warnings)
            environments = provide_environments(engine)
        except ValidationError as error:
            raise CommandError("; ".join(error.messages)) from error
        except SiteError as error:
            raise CommandError(f"{settings.DOCKER_HOST}: {error}") from error
        names = [str(environment) for environment in environments]
        prepared = {
            "engine": engine.name,
            "environments": names,
            "admin": ADMIN,
            "admin_password": provide_admin(),
            "client": CLIENT,
            "token": provide_token(),
        }
        self.stdout.write(f"environments: {', '.join(names)}")
        self._hand_over(json.dumps(prepared, indent=1), options["output"])

    def _hand_over(self, text: str, output: Path | None) -> None:
        if output is None:
            self.stdout.write(text)
            return
        output.unlink(missing_ok=True)  # Its mode is ours only if we make it.
        with os.fdopen(os.open(output, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(text + "\n")
        self.stdout.write(f"names and secrets: {output}")


def provide_environments(engine: Engine) -> list[Environment]:
    """The engine's environments, and it is activated: those that DOCKER_COMPUTE_ENVIRONMENTS says, else `small` (with a
    free tier) and `large` when it has none yet.

    Before: a registered engine. After: active, unless an operator has drained it. Raises ValidationError.
    """
    assert engine.host is not None
    with transaction.atomic():
        if settings.DOCKER_COMPUTE_ENVIRONMENTS:
            import_configuration(from_settings(), Choice(engine=engine.name))
        elif not engine.environments.exists():
            keep_for_system(engine.host)
            create_small_and_large(engine, engine.host)
        if engine.state == EngineState.DISABLED:
            activate_engine(engine)
    return list(engine.environments.select_related("engine"))


def keep_for_system(host: Host) -> None:
    """Keep an eighth of the memory (at most 1 GiB) and a tenth of the disk for the system, where nothing is kept yet."""
    host.refresh_from_db()
    host.reserve_memory_mib = host.reserve_memory_mib or min(1024, host.memory_mib // 8)
    host.reserve_disk_mib = host.reserve_disk_mib or host.disk_mib // 10
    save_clean(host)


def create_small_and_large(engine: Engine, host: Host) -> None:
    """Share the host: `small` gets half of the cores and a quarter of the memory, `large` the rest.

    A host with a single core gets only `small`, since a core belongs to one environment.
    """
    cores, ram, disk = max(1, host.cpu_count // 2), host.usable_memory_mib // 4, host.usable_disk_mib
    small = {"cpu": cores, "ram": ram, "disk": min(4096, disk // 8)}
    create_environment(
        engine,
        "small",
        description="Half of the cores, with a free tier.",
        cpu=small["cpu"],
        ram_mib=small["ram"],
        disk_mib=small["disk"],
        free=small,
        prices=PRICES,
    )
    if host.cpu_count > 1:
        create_environment(
            engine,
            "large",
            description="The other half, and most of the memory.",
            ram_mib=host.usable_memory_mib - ram,
            disk_mib=min(16384, disk // 4),
            prices=PRICES,
        )


def provide_admin() -> str | None:
    """An administrator with a fresh one-time password; None once somebody has logged in with it."""
    user, _ = get_user_model().objects.get_or_create(
        username=ADMIN, defaults={"is_staff": True, "is_superuser": True}
    )
    if user.last_login is not None:
        return None
    password = secrets.token_urlsafe(12)
    user.set_password(password)
    user.save(update_fields=["password"])
    return password


def provide_token() -> str:
    """A client with an account of its own, some credit (once), and a token for a day; its earlier tokens are void."""
    user, created = get_user_model().objects.get_or_create(username=CLIENT)
    if created:
        user.set_unusable_password()
        user.save(update_fields=["password"])
    account, _ = Account.objects.get_or_create(name=CLIENT)
    Membership.objects.get_or_create(account=account, user=user, defaults={"role": Role.OWNER})
    top_up(account, CREDIT, reference="demo", by="prepare_demo")
    Token.objects.filter(user=user).delete()
    return make_token(user, (*USUAL, Scope.FLEET), name="demo", lifetime=TOKEN_LIFE)[1]
