"""Configurations of Ocean Node in and out, for administrators only.

They stand here and not with `environments`, which knows no REST; the import itself is the one of every other door.
"""

from decimal import Decimal

from django.core.exceptions import ValidationError
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.permissions import IsAdminUser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from compute_site.core.api import StrictJSONParser
from compute_site.core.authentication import HasScope
from compute_site.core.etags import (
    IF_MATCH,
    IF_NONE_MATCH,
    NOT_MODIFIED,
    as_seen,
    content_tag,
    not_modified,
)
from compute_site.core.scopes import Scope
from environments.editing import lock_configuration
from environments.history import Author
from environments.importing import Choice, as_json, docker_engines, export_engine, import_configuration
from environments.models import Door
from environments.permissions import may_export, may_import
from jobs.api.configuration_serializers import ImportRequest, PlanDetail, plan_detail
from jobs.api.pointers import pointer_of


class ExactJSONParser(StrictJSONParser):
    """Keeps every digit of a price."""

    parse_float = Decimal


class MayImport(IsAdminUser):
    """Administrators whom the admin would let import."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        return super().has_permission(request, view) and may_import(request.user)


class MayExport(IsAdminUser):
    """Administrators whom the admin would let export."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        return super().has_permission(request, view) and may_export(request.user)


class ConfigurationImport(APIView):
    """Environments as a configuration says."""

    scope = Scope.ADMIN
    permission_classes = [MayImport, HasScope]
    parser_classes = [ExactJSONParser]

    @extend_schema(
        operation_id="configuration_import",
        request=ImportRequest,
        parameters=[IF_MATCH],
        responses=PlanDetail,
    )
    def post(self, request: Request) -> Response:
        """Make engines and environments as the configuration says, all or nothing; the same again changes nothing.

        Refusals point at the value in the configuration. If-Match takes the ETag of an export: of the engine that is
        named, or of all. Each kind of row that would change takes the permission to change it by hand; one that is
        missing is told by name (403).
        """
        asked = ImportRequest(data=request.data)
        asked.is_valid(raise_exception=True)
        wanted = dict(asked.validated_data)
        configuration = wanted.pop("configuration")
        try:
            author = Author(request.user.get_username(), Door.IMPORT, user=request.user)
            with as_seen(request, lambda: _locked_tag(wanted.get("engine", ""))):
                plan = import_configuration(configuration, Choice(**wanted), author)
        except ValidationError as error:
            found = error.update_error_dict({})
            pointed = {pointer_of(path, configuration).removeprefix("/"): found[path] for path in found}
            raise ValidationError(pointed) from error
        return Response(plan_detail(plan, configuration))


class ConfigurationExport(APIView):
    """The nested form of a configuration."""

    scope = Scope.ADMIN
    permission_classes = [MayExport, HasScope]

    @extend_schema(
        operation_id="configuration_export",
        parameters=[
            OpenApiParameter("engine", str, description="Only this engine; none = all of Docker."),
            IF_NONE_MATCH,
        ],
        responses={
            200: OpenApiResponse(OpenApiTypes.ANY, description="What an import would make again."),
            304: NOT_MODIFIED,
        },
    )
    def get(self, request: Request) -> HttpResponse:
        """Engines with their environments, as an import would make them again."""
        engines = docker_engines()
        if name := request.query_params.get("engine"):
            engines = engines.filter(name=name)
            if not engines:
                names = ", ".join(docker_engines().values_list("name", flat=True)) or "none"
                raise ValidationError({"engine": f"There is no engine {name}; there are: {names}."})
        text = as_json([export_engine(engine) for engine in engines])
        tag = content_tag(text.encode())
        whole = HttpResponse(text, content_type="application/json", headers={"ETag": tag})
        return not_modified(request, tag) or whole


def _locked_tag(name: str) -> str:
    """The tag of an export of this engine, or of all, as it is now, under locks; empty when there is no such engine."""
    lock_configuration()
    engines = docker_engines().filter(name=name) if name else docker_engines()
    exported = [export_engine(engine) for engine in engines]
    return content_tag(as_json(exported).encode()) if exported or not name else ""
