"""Pods: rent, look, terminate; staff only. Renting is done by the site's worker: these views only write the row."""

import itertools
from typing import Any

from django.db.models import Q
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.generics import get_object_or_404
from rest_framework.permissions import IsAdminUser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from compute_site.core.authentication import HasScope
from compute_site.core.db import database_now
from compute_site.core.etags import (
    IF_MATCH,
    IF_NONE_MATCH,
    NOT_MODIFIED,
    as_seen,
    locked_tag,
    not_modified,
    version_tag,
    with_version,
)
from compute_site.core.scopes import Scope
from providers import ending, renting
from providers.api.refusals import told
from providers.api.serializers import PodDetail, PodListing, PodRequest
from providers.models import FINAL, Pod, ProviderAccount
from providers.vendors import connected

MOST = 200
LOG_BYTES = 1024 * 1024


class Pods(APIView):
    """Pods, and renting one."""

    scope = Scope.ADMIN
    permission_classes = [IsAdminUser, HasScope]

    @extend_schema(
        operation_id="pods_list",
        parameters=[OpenApiParameter("all", bool, description="Also those that are over.")],
        responses=PodListing(many=True),
    )
    def get(self, request: Request) -> Response:
        """Live pods, or all of them: the newest 200."""
        pods = Pod.objects.select_related("account")
        if request.query_params.get("all", "").lower() not in ("1", "true"):
            pods = pods.exclude(status__in=FINAL)
        return Response(PodListing(pods[:MOST], many=True, context={"now": database_now()}).data)

    @extend_schema(
        operation_id="pods_create",
        parameters=[OpenApiParameter("Idempotency-Key", str, OpenApiParameter.HEADER)],
        request=PodRequest,
        responses={201: PodDetail, 200: OpenApiResponse(PodDetail, "The same key asked before.")},
    )
    def post(self, request: Request) -> Response:
        """Ask for a pod. Caps and budget are checked here; it is rented a moment later."""
        asked = PodRequest(data=request.data)
        asked.is_valid(raise_exception=True)
        key = request.headers.get("Idempotency-Key", "")
        if len(key) > 255:
            raise ValidationError({"Idempotency-Key": "At most 255 characters."})
        account = _account(asked.validated_data["account"])
        with told():
            pod, new = renting.ask(account, asked.wanted(), user=request.user, request_key=key)
        return Response(_detail(pod), status=201 if new else 200)


class PodOne(APIView):
    """One pod."""

    scope = Scope.ADMIN
    permission_classes = [IsAdminUser, HasScope]

    @extend_schema(
        operation_id="pods_retrieve",
        parameters=[IF_NONE_MATCH],
        responses={200: PodDetail, 304: NOT_MODIFIED},
    )
    def get(self, request: Request, public_id: Any) -> Response:
        """The pod with its history. Its ETag changes whenever the provider is seen to list it."""
        pod = _pod(public_id)
        tag = version_tag(pod)
        return not_modified(request, tag) or Response(_detail(pod), headers={"ETag": tag})


class PodTerminate(APIView):
    """The end of a pod."""

    scope = Scope.ADMIN
    permission_classes = [IsAdminUser, HasScope]

    @extend_schema(
        operation_id="pods_terminate", request=None, parameters=[IF_MATCH], responses={202: PodDetail}
    )
    def post(self, request: Request, public_id: Any) -> Response:
        """Have it ended; repeating is harmless. It is over when its status is terminated or failed."""
        pod = _pod(public_id)
        with as_seen(request, lambda: locked_tag(pod)):
            after = ending.ask_end(pod, "operator")
        return Response(_detail(after), status=202)


class PodLogs(APIView):
    """What a pod wrote."""

    scope = Scope.ADMIN
    permission_classes = [IsAdminUser, HasScope]

    @extend_schema(operation_id="pods_logs", responses={(200, "text/plain"): OpenApiTypes.BINARY})
    def get(self, request: Request, public_id: Any) -> HttpResponse:
        """The log as the provider has it, at most 1 MiB; asks the provider now."""
        pod = _pod(public_id)
        if not pod.provider_id:
            return HttpResponse(b"", content_type="text/plain; charset=utf-8")
        with told(), connected(pod.account) as provider:
            data = b"".join(itertools.islice(provider.logs(pod.provider_id), 1024))[:LOG_BYTES]
        return HttpResponse(data, content_type="text/plain; charset=utf-8")


def _pod(public_id: Any) -> Pod:
    return get_object_or_404(with_version(Pod.objects.select_related("account")), public_id=public_id)


def _detail(pod: Pod) -> Any:
    return PodDetail(pod, context={"now": database_now()}).data


def _account(word: str) -> ProviderAccount:
    found = Q(name=word)
    if len(word) == 36 and word.count("-") == 4:
        found |= Q(public_id=word)
    account = ProviderAccount.objects.filter(found).first()
    if account is None:
        raise ValidationError({"account": "There is no such account."})
    return account
