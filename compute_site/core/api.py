"""What every REST route shares: how a body is read, and how any refusal is told (application/problem+json, RFC 9457)."""

from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

from django.core.exceptions import NON_FIELD_ERRORS, PermissionDenied, ValidationError
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, JsonResponse
from rest_framework import exceptions, serializers
from rest_framework.parsers import BaseParser
from rest_framework.response import Response

from compute_site.core.errors import Rejected, TransitionRefused
from compute_site.core.strict_json import MAX_BYTES, NotJSON, read_json

PROBLEM_TYPE = "application/problem+json"
DATABASE_DOWN = "The site's database does not answer now; nothing was changed."
NOBODY = (
    "Nothing tells who you are: send a token, `Authorization: Bearer …`. POST /api/v1/tokens makes one, with name and"
    " password."
)
RETRY_LATER = {"Retry-After": "5"}


class BodyTooLarge(exceptions.APIException):
    """413: the body is larger than any request of ours."""

    status_code = 413
    default_detail = f"The body is larger than {MAX_BYTES} bytes."
    default_code = "body_too_large"


class StrictJSONParser(BaseParser):
    """The only parser. What it lets through can be stored; what it refuses is the client's fault, never a 500."""

    media_type = "application/json"
    parse_float: Callable[[str], Any] = float

    def parse(
        self, stream: Any, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        body = stream.read(MAX_BYTES + 1)
        if len(body) > MAX_BYTES:
            raise BodyTooLarge
        try:
            return read_json(body, self.parse_float)
        except NotJSON as error:
            raise exceptions.ParseError(f"The body is not acceptable JSON: {error}") from None


class StrictSerializer(serializers.Serializer):
    """Refuses fields that it does not know."""

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if unknown := set(self.initial_data) - set(self.fields):
            raise serializers.ValidationError({name: "Unknown field." for name in sorted(unknown)})
        return attrs


def problem_response(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """DRF's exception handler: every refusal as a problem. None for faults of ours, which Django then reports."""
    found = _describe(error)
    if found is None:
        return None
    status, code, detail, errors, headers = found
    request = context.get("request")
    body = problem(status, code, detail, errors, instance=request.path if request is not None else "")
    return Response(body, status=status, headers=headers, content_type=PROBLEM_TYPE)


def refusal(error: Exception) -> dict[str, Any]:
    """What the body of the answer would be if `error` (a ValidationError or Rejected) was raised."""
    found = _describe(error)
    if found is None:
        raise error
    status, code, detail, errors, _ = found
    return problem(status, code, detail, errors)


def problem(
    status: int, code: str, detail: str, errors: list[dict[str, str]] | None = None, *, instance: str = ""
) -> dict[str, Any]:
    """The body of a problem. `code` is stable; `errors` point into the request's body (JSON pointers)."""
    return {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "instance": instance,
        "code": code,
        "errors": errors or [],
    }


def problem_page(
    request: HttpRequest, status: int, code: str, detail: str, headers: dict[str, str] | None = None
) -> JsonResponse:
    """A problem for where no REST view runs: middleware, unknown addresses, the health routes."""
    body = problem(status, code, detail, instance=request.path)
    return JsonResponse(body, status=status, headers=headers, content_type=PROBLEM_TYPE)


def database_down_page(request: HttpRequest) -> JsonResponse:
    """503: the database does not answer, nothing was changed, and the client may come again."""
    return problem_page(request, 503, "database_unavailable", DATABASE_DOWN, RETRY_LATER)


Description = tuple[int, str, str, list[dict[str, str]], dict[str, str]]


def _describe(error: Exception) -> Description | None:
    """Status, code, detail, errors, headers."""
    if isinstance(error, ValidationError):
        return 400, "invalid", "The request has wrong values.", list(_django_errors(error)), {}
    if isinstance(error, Rejected):
        told = error.details or [str(error)]
        errors = [_entry(error.field, error.code, each) for each in told] if error.field else []
        return error.status, error.code, str(error), errors, {}
    if isinstance(error, TransitionRefused):
        return 409, "conflict", str(error), [], {}
    if isinstance(error, OperationalError | InterfaceError):
        return 503, "database_unavailable", DATABASE_DOWN, [], RETRY_LATER
    if isinstance(error, Http404):
        error = exceptions.NotFound("There is nothing here for you.")
    elif isinstance(error, PermissionDenied):
        error = exceptions.PermissionDenied()
    elif isinstance(error, exceptions.NotAuthenticated):
        error.detail = exceptions.ErrorDetail(NOBODY, code=error.default_code)  # it keeps its header
    return _describe_api(error) if isinstance(error, exceptions.APIException) else None


def _describe_api(error: exceptions.APIException) -> Description:
    headers = {}
    if header := getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = header
    if wait := getattr(error, "wait", None):
        headers["Retry-After"] = f"{wait:.0f}"
    if isinstance(error, exceptions.ValidationError):
        errors = list(_api_errors(error.detail, ""))
        return error.status_code, "invalid", "The request has wrong values.", errors, headers
    codes = error.get_codes()
    code = codes if isinstance(codes, str) else error.default_code
    return error.status_code, code, str(error.detail), [], headers


def _django_errors(error: ValidationError) -> Iterator[dict[str, str]]:
    if not hasattr(error, "error_dict"):
        yield from (_entry("", each.code, each.messages[0]) for each in error.error_list)
        return
    for field, faults in error.error_dict.items():
        path = "" if field == NON_FIELD_ERRORS else field
        yield from (_entry(path, each.code, each.messages[0]) for each in faults)


def _api_errors(detail: Any, path: str) -> Iterator[dict[str, str]]:
    if isinstance(detail, Mapping):
        for key, inner in detail.items():
            step = "" if key == "non_field_errors" else str(key)
            yield from _api_errors(inner, f"{path}/{step}".strip("/"))
    elif isinstance(detail, list):
        for position, inner in enumerate(detail):
            nested = isinstance(inner, Mapping | list)
            yield from _api_errors(inner, f"{path}/{position}".strip("/") if nested else path)
    else:
        yield _entry(path, getattr(detail, "code", None), str(detail))


def _entry(path: str, code: str | None, detail: str) -> dict[str, str]:
    """One error. Text that came from the client is told in a form that any JSON reader can take."""
    clean = {"pointer": f"/{path}" if path else "", "code": code or "invalid", "detail": detail}
    return {name: text.encode("utf-8", "backslashreplace").decode() for name, text in clean.items()}
