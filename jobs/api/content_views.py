"""Bytes of a job: its log and its stored outputs."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import IO, Any
from urllib.parse import quote

from django.core.exceptions import ValidationError
from django.core.handlers.asgi import ASGIRequest
from django.db.models import QuerySet
from django.http import Http404, HttpResponse, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.generics import GenericAPIView, get_object_or_404
from rest_framework.mixins import ListModelMixin
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from compute_site.core.scopes import Scope
from jobs.api.job_views import own_job
from jobs.api.serializers import ArtifactDetail
from jobs.logs import bytes_cut, read_log
from jobs.models import Artifact, Attempt, Stream
from jobs.models.attempt import FINAL
from jobs.results import open_artifact

MAX_LOG_BYTES = 4 * 1024 * 1024
MAX_NUMBER = 2**62
BLOCK = 256 * 1024
BYTES = "application/octet-stream"
SAFE = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox; default-src 'none'"}


class JobLogs(APIView):
    """The log of a job."""

    scope = Scope.READ

    @extend_schema(
        parameters=[
            OpenApiParameter("stream", str, enum=Stream.values, default="stdout"),
            OpenApiParameter("after", int, description="Offset in bytes to read from.", default=0),
            OpenApiParameter("limit", int, description="Most bytes to read.", default=MAX_LOG_BYTES),
            OpenApiParameter("attempt", int, description="Number of the attempt; none = the last one."),
        ],
        responses={(200, BYTES): OpenApiResponse(OpenApiTypes.BINARY, "The bytes as written.")},
    )
    def get(self, request: Request, public_id: Any) -> HttpResponse:
        """Bytes of stdout or stderr, exactly as written, live while the job runs.

        `X-Next-Offset` is where to go on; `X-Log-Complete: true` says that nothing will follow; `X-Log-Bytes-Cut`
        counts what was beyond the cap. A job that is tried again starts a new log: `X-Attempt` tells which one it is.
        """
        stream, after, limit, number = _log_query(request)
        job = own_job(request, public_id)
        attempts = Attempt.objects.filter(job=job)
        attempt = (attempts.filter(number=number) if number else attempts).order_by("-number").first()
        if attempt is None:
            if number:
                raise Http404
            return _log_page(b"", after, cut=0, attempt=0, complete=job.is_final)
        data, end = read_log(attempt, stream, after, limit)
        ended = attempt.status in FINAL and (job.is_final or bool(number))
        complete = ended and len(data) < limit
        return _log_page(data, end, cut=bytes_cut(attempt, stream), attempt=attempt.number, complete=complete)


class JobArtifacts(ListModelMixin, GenericAPIView):
    """The stored outputs of a job."""

    scope = Scope.READ
    serializer_class = ArtifactDetail
    pagination_class = None
    filter_backends = []

    def get_queryset(self) -> QuerySet[Artifact]:
        if getattr(self, "swagger_fake_view", False):
            return Artifact.objects.none()
        return Artifact.objects.filter(job=own_job(self.request, self.kwargs["public_id"])).order_by("path")

    def get(self, request: Request, public_id: Any) -> Response:
        """Path, size and sha256 of each output."""
        return self.list(request)


class ArtifactContent(APIView):
    """One stored output."""

    scope = Scope.READ

    @extend_schema(responses={(200, BYTES): OpenApiResponse(OpenApiTypes.BINARY, "The content.")})
    def get(self, request: Request, public_id: Any, path: str) -> StreamingHttpResponse:
        """The content of one output, always as a download. The path is data: it is compared, never opened."""
        artifact = get_object_or_404(Artifact, job=own_job(request, public_id), path=path)
        try:
            content = open_artifact(artifact)
        except FileNotFoundError:
            raise Http404 from None
        response = StreamingHttpResponse(_blocks(request, content), content_type=BYTES, headers=SAFE)
        response["ETag"] = f'"{artifact.sha256}"'
        name = quote(path.rpartition("/")[2], safe="")
        response["Content-Disposition"] = f"attachment; filename*=UTF-8''{name}"
        response["Content-Length"] = str(artifact.size)
        return response


def _blocks(request: Request, content: IO[bytes]) -> Iterator[bytes] | AsyncIterator[bytes]:
    """The content in blocks, in the way that the server asks for: an asynchronous one would gather the other whole."""
    return _async_blocks(content) if isinstance(request._request, ASGIRequest) else _sync_blocks(content)


def _sync_blocks(content: IO[bytes]) -> Iterator[bytes]:
    with content:
        while block := content.read(BLOCK):
            yield block


async def _async_blocks(content: IO[bytes]) -> AsyncIterator[bytes]:
    with content:
        while block := await asyncio.to_thread(content.read, BLOCK):
            yield block


def _log_query(request: Request) -> tuple[str, int, int, int]:
    stream = request.query_params.get("stream", Stream.STDOUT)
    if stream not in Stream.values:
        raise ValidationError({"stream": ValidationError("Must be stdout or stderr.", code="invalid_choice")})
    after = _number(request, "after", 0, MAX_NUMBER, default=0)
    limit = _number(request, "limit", 1, MAX_LOG_BYTES, default=MAX_LOG_BYTES)
    return stream, after, limit, _number(request, "attempt", 1, 32767, default=0)


def _number(request: Request, name: str, least: int, most: int, *, default: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
        raise ValidationError(
            {name: ValidationError(f"Must be a whole number from {least} to {most}.", code="invalid")}
        )
    return int(text)


def _log_page(data: bytes, end: int, *, cut: int, attempt: int, complete: bool) -> HttpResponse:
    headers = {
        **SAFE,
        "X-Next-Offset": str(end),
        "X-Log-Bytes-Cut": str(cut),
        "X-Log-Complete": "true" if complete else "false",
        "X-Attempt": str(attempt),
        "Cache-Control": "no-store",
    }
    return HttpResponse(data, content_type=BYTES, headers=headers)
