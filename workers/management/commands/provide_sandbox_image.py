"""`manage.py provide_sandbox_image`: the engine at DOCKER_HOST has SANDBOX_IMAGE, or says why it cannot."""

from contextlib import closing, suppress
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError

from compute_site.core.errors import SiteError
from environments.models import Engine
from workers.own_images import remember
from workers.sandbox.docker import EngineClient
from workers.sandbox_image import Provided, provide_sandbox_image


class Command(BaseCommand):
    help = (
        "Make sure that the engine at DOCKER_HOST has SANDBOX_IMAGE: load it from CACHE_DIR, build it from SANDBOX_BASE"
        " (names below compute-site/) or pull it (others). Changes nothing where it is there."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        with closing(EngineClient(settings.DOCKER_HOST)) as client:
            try:
                before = client.image_ids()
                provided = provide_sandbox_image(
                    client,
                    settings.SANDBOX_IMAGE,
                    base=settings.SANDBOX_BASE,
                    dockerfile=settings.BASE_DIR / "docker/sandbox/Dockerfile",
                    cache=settings.CACHE_DIR,
                    seconds=settings.IMAGE_PULL_SECONDS,
                )
                self._remember(client, provided, before)
            except SiteError as error:
                raise CommandError(f"{settings.DOCKER_HOST}: {error}") from error
        self.stdout.write(
            f"sandbox image {settings.SANDBOX_IMAGE}: {provided.how} ({provided.image.id[7:19]})"
        )

    def _remember(self, client: EngineClient, provided: Provided, before: set[str]) -> None:
        """An engine that is not registered yet, or a site without its database, keeps the image as the operator's."""
        if not provided.origin:
            return
        with suppress(DatabaseError):
            engine = Engine.objects.filter(docker_id=client.facts().engine_id).first()
            if engine is not None:
                remember(engine, provided.image, settings.SANDBOX_IMAGE, provided.origin, before=before)
