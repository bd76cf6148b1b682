"""Who asks: a bearer token (hashed at rest), or name and password where a token is made; and what the token is for."""

from collections.abc import Mapping
from typing import Any

from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from knox.auth import TokenAuthentication
from knox.crypto import hash_token
from knox.models import get_token_model
from rest_framework.authentication import BasicAuthentication
from rest_framework.exceptions import AuthenticationFailed, PermissionDenied
from rest_framework.permissions import BasePermission

from compute_site.core.scopes import ANY

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


class HasScope(BasePermission):
    """A token needs the scope that the view names in `scope`, for all its methods or for each. Sessions need none.

    It comes beside the permissions that ask for the user's rights, never in their place.
    """

    def has_permission(self, request: Any, view: Any) -> bool:
        """Raises PermissionDenied, with the scope that is missing."""
        needed = scope_of(view, request.method)
        if request.auth is None or needed == ANY or needed in request.auth.scopes:
            return True
        error = PermissionDenied(
            f"This needs a token with the scope {needed}; this one has {', '.join(request.auth.scopes)}.",
            code="scope_missing",
        )
        error.auth_header = f'Bearer error="insufficient_scope", scope="{needed}"'  # type: ignore[attr-defined]
        raise error


def scope_of(view: Any, method: str) -> str:
    """The scope that a token needs for this method of the view; `ANY` where the view has no such method."""
    if not isinstance(view.scope, Mapping):
        return str(view.scope)
    method = "GET" if method == "HEAD" else method
    if method == "OPTIONS" or not hasattr(view, method.lower()):
        return ANY
    return str(view.scope[method])


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the schema tells of bearer tokens."""

    target_class = "compute_site.core.authentication.BearerAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "bearerFormat": "cs_..."}

    def get_security_requirement(self, auto_schema: Any) -> dict[str, list[str]]:
        """With the scope that the token needs."""
        needed = scope_of(auto_schema.view, auto_schema.method)
        return {self.name: [needed] if needed else []}


class PasswordScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the schema tells of name and password."""

    target_class = "compute_site.core.authentication.PasswordAuthentication"
    name = "password"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "basic"}
