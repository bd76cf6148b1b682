"""Who asks: a bearer token (hashed at rest), or name and password where a token is made."""

from typing import Any

from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from knox.auth import TokenAuthentication
from knox.crypto import hash_token
from knox.models import get_token_model
from rest_framework.authentication import BasicAuthentication
from rest_framework.exceptions import AuthenticationFailed

REFUSED = "Name and password, or the token, are not valid."


class BearerAuthentication(TokenAuthentication):
    """Knox's tokens, found by their hash in one statement; an expired one is refused."""

    def authenticate_credentials(self, token: bytes) -> tuple[Any, Any]:
        try:
            digest = hash_token(token.decode("ascii"))
        except UnicodeDecodeError:
            raise AuthenticationFailed(REFUSED) from None
        row = get_token_model().objects.select_related("user").filter(digest=digest).first()
        if row is None or (row.expiry is not None and row.expiry < timezone.now()):
            raise AuthenticationFailed(REFUSED)
        return self.validate_user(row)


class PasswordAuthentication(BasicAuthentication):
    """HTTP Basic, only where a token is made: checking a password is slow on purpose."""

    def authenticate_credentials(self, userid: str, password: str, request: Any = None) -> tuple[Any, Any]:
        if "\0" in userid:
            raise AuthenticationFailed(REFUSED)
        return super().authenticate_credentials(userid, password, request)


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the schema tells of bearer tokens."""

    target_class = "compute_site.core.authentication.BearerAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "bearerFormat": "cs_..."}


class PasswordScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the schema tells of name and password."""

    target_class = "compute_site.core.authentication.PasswordAuthentication"
    name = "password"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "basic"}
