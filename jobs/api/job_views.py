"""Routes of jobs. Every job is looked up among those of the caller's accounts: another's is not there at all."""

from typing import Any, cast

from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet
from django_filters import rest_framework as filters
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.generics import GenericAPIView, get_object_or_404
from rest_framework.mixins import ListModelMixin
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

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
from jobs.admission import admit
from jobs.api.pagination import EventPages, JobPages
from jobs.api.requests import JobRequest
from jobs.api.serializers import EventDetail, JobAdmitted, JobDetail, JobListing, QuoteDetail
from jobs.cancellation import cancel
from jobs.models import Job, JobEvent, JobStatus
from jobs.quoting import quote
from jobs.spec import read_spec

IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="Up to 255 visible ASCII characters. The same key and body answers with the same job again.",
)


def own_jobs(request: Request) -> QuerySet[Job]:
    """The jobs of all accounts of which the caller is a member."""
    return Job.objects.filter(account__memberships__user=request.user.pk)


def own_job(request: Request, public_id: Any) -> Job:
    """One of the caller's jobs. Raises Http404."""
    return get_object_or_404(
        own_jobs(request).only("pk", "public_id", "status", "usage"), public_id=public_id
    )


class JobFilter(filters.FilterSet):
    """Which jobs a list shows."""

    status = filters.MultipleChoiceFilter(choices=JobStatus.choices, help_text="May be given several times.")
    environment = filters.CharFilter(
        method="in_environment", help_text="Id of an environment, or engine/slug."
    )

    class Meta:
        model = Job
        fields = ["status", "environment"]

    def in_environment(self, rows: QuerySet[Job], name: str, value: str) -> QuerySet[Job]:
        engine, slash, slug = value.partition("/")
        if slash:
            return rows.filter(environment__engine__name=engine, environment__slug=slug)
        try:
            return rows.filter(Q(environment__public_id=engine))
        except ValidationError:
            return rows.none()


class JobList(ListModelMixin, GenericAPIView):
    """Submit a job; list the caller's jobs."""

    scope = {"GET": Scope.READ, "POST": Scope.SUBMIT}
    serializer_class = JobListing
    pagination_class = JobPages
    filterset_class = JobFilter

    def get_queryset(self) -> QuerySet[Job]:
        rows = own_jobs(self.request).select_related("account", "environment__engine")
        return rows.defer("spec", "terms", "result", "manifest", "refused_outputs")

    @extend_schema(parameters=[OpenApiParameter("ordering", str, enum=["created", "-created"])])
    def get(self, request: Request) -> Response:
        """The jobs of the caller's accounts, newest first."""
        return self.list(request)

    @extend_schema(
        request=JobRequest, responses={201: JobAdmitted}, parameters=[IDEMPOTENCY_KEY], filters=False
    )
    def post(self, request: Request) -> Response:
        """Admit a job to the queue, or refuse it with nothing written."""
        key = idempotency_key(request)
        user = cast(AbstractBaseUser, request.user)
        job, replayed = admit(user=user, spec=read_spec(request.data), idempotency_key=key)
        headers = {"Location": f"/api/v1/jobs/{job.public_id}"}
        if replayed:
            headers["Idempotent-Replayed"] = "true"
        now = database_now() if replayed else job.created_at
        return Response(
            JobAdmitted(job, context={"now": now, "request": request}).data, status=201, headers=headers
        )


class JobQuote(APIView):
    """Ask what a job would cost."""

    scope = Scope.READ

    @extend_schema(request=JobRequest, responses=QuoteDetail, operation_id="jobs_quote")
    def post(self, request: Request) -> Response:
        """The checks of a submit without creating anything: amounts, prices, the refusal, what it would wait for."""
        found = quote(cast(AbstractBaseUser, request.user), read_spec(request.data))
        return Response(QuoteDetail(found, context={"request": request}).data)


class JobOne(GenericAPIView):
    """One job."""

    scope = Scope.READ
    serializer_class = JobDetail
    lookup_field = "public_id"

    def get_queryset(self) -> QuerySet[Job]:
        rows = own_jobs(self.request).select_related("account", "environment__engine__host", "hold")
        return with_version(rows).prefetch_related("attempts__engine")

    @extend_schema(parameters=[IF_NONE_MATCH], responses={200: JobDetail, 304: NOT_MODIFIED})
    def get(self, request: Request, public_id: Any) -> Response:
        """Where a job stands, what it waits for, and how it ended.

        The ETag changes with the job itself; pending_reason, estimated_wait, cost and attempts of one that is not final may
        change without it, since they depend on others and on the time.
        """
        job = self.get_object()
        tag = version_tag(job)
        shown = not_modified(request, tag)
        return shown or Response(self.get_serializer(job).data, headers={"ETag": tag})


class JobCancel(APIView):
    """Cancel a job."""

    scope = Scope.SUBMIT

    @extend_schema(request=None, parameters=[IF_MATCH], responses=JobDetail)
    def post(self, request: Request, public_id: Any) -> Response:
        """Cancel in any state; as often as one likes. A queued job ends at once, a running one is stopped."""
        job = own_job(request, public_id)
        with as_seen(request, lambda: locked_tag(job)):
            after = cancel(job, cast(AbstractBaseUser, request.user).get_username())
        return Response(JobDetail(after, context={"request": request}).data)


class JobEvents(ListModelMixin, GenericAPIView):
    """What happened to a job."""

    scope = Scope.READ
    serializer_class = EventDetail
    pagination_class = EventPages
    filter_backends = []

    def get_queryset(self) -> QuerySet[JobEvent]:
        if getattr(self, "swagger_fake_view", False):
            return JobEvent.objects.none()
        return JobEvent.objects.filter(job=own_job(self.request, self.kwargs["public_id"])).select_related(
            "attempt"
        )

    def get(self, request: Request, public_id: Any) -> Response:
        """The job's history, oldest first."""
        return self.list(request)


def idempotency_key(request: Request) -> str:
    """The Idempotency-Key header, or an empty string. Raises ValidationError."""
    key = request.headers.get("Idempotency-Key")
    if key is None:
        return ""
    if not 1 <= len(key) <= 255 or not all("!" <= character <= "~" for character in key):
        raise ValidationError(
            "An Idempotency-Key has 1 to 255 visible ASCII characters.", code="idempotency_key"
        )
    return key
