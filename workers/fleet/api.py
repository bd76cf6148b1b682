"""The fleet's routes. While the fleet is off there is nothing at these addresses."""

import hmac
from collections.abc import Callable
from functools import wraps
from typing import Any, cast
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ObjectDoesNotExist
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponseBase
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from compute_site.core.authentication import BearerAuthentication, HasScope
from compute_site.core.db import database_now
from compute_site.core.scopes import Scope
from workers.fleet import leases, reconciliation, registration, shapes, showing
from workers.fleet.models import RemoteWorker, Replica
from workers.fleet.requests import (
    NotAuthentic,
    NotEntitled,
    Signed,
    authenticate,
    burn,
    check_reader,
    signing_worker,
)
from workers.fleet.signing import KEY_HEADER


@extend_schema(exclude=True)  # off by default: told in docs/fleet.md
class FleetView(APIView):
    """Requests are signed: neither tokens nor sessions count, unless a route says so and names the scope of its tokens."""

    authentication_classes: list[Any] = []
    permission_classes: list[Any] = []

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Callable[..., HttpResponseBase]:  # type: ignore[override]
        """As Django's; but off means that there is no such address, whoever asks, however."""
        view = super().as_view(**initkwargs)

        @wraps(view)
        def gate(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if not settings.FLEET_ENABLED:
                raise Http404
            return view(request, *args, **kwargs)

        return gate

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Keep the body as it was signed."""
        self.signed_body = request._request.body
        super().initial(request, *args, **kwargs)

    def handle_exception(self, exc: Exception) -> Response:
        """What is not there is told as everywhere."""
        return super().handle_exception(Http404() if isinstance(exc, ObjectDoesNotExist) else exc)

    def signed(self, request: Request) -> Signed:
        """Who signed. Raises NotAuthentic."""
        inner = request._request
        query = inner.META.get("QUERY_STRING", "")
        return authenticate(inner.headers, inner.method or "", inner.path, query, self.signed_body)

    def read(self, request: Request) -> None:
        """Let a signed reader pass, whose nonce is used up."""
        signed = self.signed(request)
        with transaction.atomic():
            check_reader(signed)
            burn(signed)


def fields(shape: type[Any], request: Request) -> dict[str, Any]:
    """The body's fields. Raises DRF's ValidationError."""
    read = shape(data=request.data)
    read.is_valid(raise_exception=True)
    return cast(dict[str, Any], read.validated_data)


class Register(FleetView):
    """A worker arrives."""

    def post(self, request: Request) -> Response:
        """Register, or refresh, the worker whose key signed."""
        signed, data = self.signed(request), fields(shapes.Registration, request)
        worker = registration.register(signed, data["binding"], data["signature"], data["version"])
        return Response({**showing.worker(worker, database_now()), "ttl": settings.FLEET_TTL_SECONDS})


class Heartbeat(FleetView):
    """A worker lives."""

    def post(self, request: Request, public_id: UUID) -> Response:
        """pending or stale → active."""
        signed = self.signed(request)
        with transaction.atomic():
            worker = signing_worker(signed, public_id)
            data = fields(shapes.Heartbeat, request)
            burn(signed)
            worker = registration.heartbeat(worker, data)
        now = database_now()
        return Response({"status": registration.status_now(worker, now), "time": now})


class Retire(FleetView):
    """A worker goes for ever."""

    scope = Scope.FLEET
    authentication_classes = [BearerAuthentication]
    permission_classes = [HasScope]

    def post(self, request: Request, public_id: UUID) -> Response:
        """Signed by a key of its owner's, or with a token of who may retire it."""
        signed = None if request.user.is_authenticated else self.signed(request)
        with transaction.atomic():
            worker = RemoteWorker.objects.select_related("owner").get(public_id=public_id)
            if not registration.may_retire(worker, signed.key if signed else "", request.user):
                raise NotEntitled("Only its owner, or the staff of the site, retires a worker.")
            if signed:
                burn(signed)
            registration.retire(worker)
            worker.refresh_from_db()
        return Response(showing.worker(worker, database_now()))


class Workers(FleetView):
    """The fleet."""

    scope = Scope.FLEET
    authentication_classes = [BearerAuthentication]
    permission_classes = [HasScope]

    def get(self, request: Request) -> Response:
        """For signed readers and tokens."""
        if not request.user.is_authenticated:
            self.read(request)
        now = database_now()
        return Response([showing.worker(row, now) for row in showing.fleet()])


class ActiveWorkers(FleetView):
    """Who may be admitted elsewhere: active workers by owner."""

    def get(self, request: Request) -> Response:
        """For signed readers, or whoever has the site's internal token."""
        if KEY_HEADER in request.headers or not _is_internal(request):
            self.read(request)
        now = database_now()
        rows = showing.fleet().filter(pk__in=registration.active_workers(now))
        if owner := request.query_params.get("owner"):
            rows = rows.filter(owner__keys__key=owner, owner__keys__revoked_at=None)
        return Response([showing.worker(row, now) for row in rows])


def _is_internal(request: Request) -> bool:
    """Compared in constant time; no token configured admits nobody."""
    expected = settings.FLEET_INTERNAL_TOKEN
    if not request.headers.get("Authorization"):
        return False
    given = request.headers["Authorization"].encode()
    if not expected or not hmac.compare_digest(given, f"Bearer {expected}".encode()):
        raise NotAuthentic("The token is not valid.")
    return True


class Units(FleetView):
    """What the fleet was given and what came of it."""

    def get(self, request: Request) -> Response:
        """For signed readers; the newest first, at most 200."""
        self.read(request)
        return Response([showing.unit(row) for row in showing.units()[:200]])


class PullAssignments(FleetView):
    """An active worker asks for what was assigned to it."""

    def post(self, request: Request) -> Response:
        """Up to `limit`; empty when there is nothing."""
        signed, data = self.signed(request), fields(shapes.Pull, request)
        with transaction.atomic():
            worker = signing_worker(signed)
            if not registration.active_workers(database_now()).filter(pk=worker.pk).exists():
                raise NotEntitled("Only an active worker gets work: send a heartbeat.", code="not_active")
            burn(signed)
            pulled = leases.pull(worker, data["limit"])
        return Response([showing.assignment(row) for row in pulled])


class ProgressOf(FleetView):
    """The holder goes on."""

    def post(self, request: Request, public_id: UUID) -> Response:
        """Renews the lease; 409 when the assignment is not its own any more."""
        signed, data = self.signed(request), fields(shapes.Progress, request)
        with transaction.atomic():
            worker = signing_worker(signed)
            burn(signed)
            said = {"note": data["note"], "log": data["log"]}
            leases.progress(worker, public_id, data["token"], said)
        return Response({"status": "running"})


class ResultOf(FleetView):
    """The holder has come to an end."""

    def post(self, request: Request, public_id: UUID) -> Response:
        """Idempotent by result; final rows are never written again."""
        signed, data = self.signed(request), fields(shapes.Result, request)
        worker = signing_worker(signed)
        found = Replica.objects.select_related("unit").get(public_id=public_id)
        if data["success"]:
            self._success(signed, worker, found, data)
        else:
            with transaction.atomic():
                burn(signed)
                reconciliation.accept_failure(
                    worker, public_id, data["token"], data["reason"], data["detail"]
                )
        reconciliation.reconcile(found.unit_id)
        # Of this assignment: the replica itself may be another worker's by now.
        return Response({"status": "reported" if data["success"] else "failed", "unit": found.unit.public_id})

    def _success(self, signed: Signed, worker: RemoteWorker, found: Replica, data: dict[str, Any]) -> None:
        """Everything is checked before a byte is stored, and stored before a row is written."""
        with transaction.atomic():
            leases.held(worker, found.public_id, data["token"])
        report = reconciliation.read_report(worker, found, data, now=database_now().timestamp())
        reconciliation.store(report)
        with transaction.atomic():
            burn(signed)
            reconciliation.accept(worker, found.public_id, data["token"], report)
