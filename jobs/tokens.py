"""How a token is made: by its user alone, with its scopes fixed, and shown once."""

from collections.abc import Collection
from datetime import timedelta
from typing import Any

from django.utils import timezone
from knox.models import get_digest_token
from knox.settings import CONSTANTS

from compute_site.core.models import save_clean
from compute_site.core.scopes import USUAL
from jobs.models import Token


def make_token(
    user: Any, scopes: Collection[str] = USUAL, *, name: str = "", lifetime: timedelta | None = None
) -> tuple[Token, str]:
    """A new token of `user` and its text, which is kept nowhere. `lifetime` None = for ever.

    Raises ValidationError with fields (scopes, name); then there is no token.
    """
    digest, text = get_digest_token()
    row = Token(
        digest=digest,
        token_key=text[: CONSTANTS.TOKEN_KEY_LENGTH],
        user=user,
        scopes=sorted(set(scopes)),
        name=name,
        expiry=None if lifetime is None else timezone.now() + lifetime,
    )
    return save_clean(row), text
