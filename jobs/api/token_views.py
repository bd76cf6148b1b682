"""Tokens: made once with a name and password or a session, shown once, and given up by whoever holds them."""

from datetime import timedelta
from typing import Any

from drf_spectacular.utils import extend_schema
from knox.models import get_token_model
from rest_framework.authentication import SessionAuthentication
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from compute_site.core.authentication import BearerAuthentication, PasswordAuthentication
from jobs.api.requests import TokenRequest
from jobs.api.serializers import NewToken


class Tokens(APIView):
    """Make a token."""

    authentication_classes = [PasswordAuthentication, SessionAuthentication]

    @extend_schema(request=TokenRequest, responses={201: NewToken})
    def post(self, request: Request) -> Response:
        """A new token for the caller (HTTP Basic, or a session). It is hashed at once and never shown again."""
        row, token = get_token_model().objects.create(user=request.user, expiry=_lifetime(request.data or {}))
        return Response(NewToken({"token": token, "expiry": row.expiry}).data, status=201)


class CurrentToken(APIView):
    """Give up the token of this request."""

    authentication_classes = [BearerAuthentication]

    @extend_schema(responses={204: None})
    def delete(self, request: Request) -> Response:
        """The token that this request came with is void from now on."""
        request.auth.delete()
        return Response(status=204)


def _lifetime(data: Any) -> timedelta | None:
    if not isinstance(data, dict) or not set(data) <= {"expires_in"}:
        raise ValidationError({"non_field_errors": "Only expires_in may be given."})
    if isinstance(data.get("expires_in"), bool | str | float):
        raise ValidationError({"expires_in": "Not a whole number of seconds."})
    asked = TokenRequest(data=data)
    asked.is_valid(raise_exception=True)
    seconds = asked.validated_data.get("expires_in")
    return timedelta(seconds=seconds) if seconds is not None else None
