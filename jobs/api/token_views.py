"""Tokens: made once with a name and password or a session, shown once, and given up by whoever holds them."""

from datetime import timedelta
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.authentication import SessionAuthentication
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from compute_site.core.authentication import BearerAuthentication, PasswordAuthentication
from compute_site.core.scopes import ANY
from jobs.api.requests import TokenRequest
from jobs.api.serializers import NewToken
from jobs.tokens import make_token


class Tokens(APIView):
    """Make a token."""

    scope = ANY
    authentication_classes = [PasswordAuthentication, SessionAuthentication]

    @extend_schema(request=TokenRequest, responses={201: NewToken})
    def post(self, request: Request) -> Response:
        """A new token for the caller (HTTP Basic, or a session; no token makes another). It is hashed at once and never
        shown again. Its scopes are fixed, and give no right that the caller does not have."""
        row, token = make_token(request.user, **_asked(request.data or {}))
        told = {"token": token, "name": row.name, "scopes": row.scopes, "expiry": row.expiry}
        return Response(NewToken(told).data, status=201)


class CurrentToken(APIView):
    """Give up the token of this request."""

    scope = ANY
    authentication_classes = [BearerAuthentication]

    @extend_schema(responses={204: None})
    def delete(self, request: Request) -> Response:
        """The token that this request came with is void from now on."""
        request.auth.delete()
        return Response(status=204)


def _asked(data: Any) -> dict[str, Any]:
    """What `make_token` is to be given. Raises ValidationError."""
    known = TokenRequest().fields
    if not isinstance(data, dict) or not set(data) <= set(known):
        raise ValidationError({"non_field_errors": f"Only {', '.join(known)} may be given."})
    if isinstance(data.get("expires_in"), bool | str | float):
        raise ValidationError({"expires_in": "Not a whole number of seconds."})
    asked = TokenRequest(data=data)
    asked.is_valid(raise_exception=True)
    wanted = dict(asked.validated_data)
    seconds = wanted.pop("expires_in", None)
    return {**wanted, "lifetime": timedelta(seconds=seconds) if seconds is not None else None}
