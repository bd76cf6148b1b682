"""ETags: what a client has seen is not sent again, and not written over once it is something else (RFC 9110, 13.1)."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from django.db import transaction
from django.db.models import Model, QuerySet
from django.db.models.expressions import RawSQL
from django.utils.http import parse_etags
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework.request import Request
from rest_framework.response import Response

from compute_site.core.db import lock_one
from compute_site.core.errors import VersionChanged

Row = TypeVar("Row", bound=Model)
IF_NONE_MATCH = OpenApiParameter(
    "If-None-Match", str, OpenApiParameter.HEADER, description="ETags that you have: 304 while one is right."
)
IF_MATCH = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    description="ETags that you saw: 412, and nothing happens, when none is right any more.",
)
NOT_MODIFIED = OpenApiResponse(description="As you have it.")


def with_version(rows: QuerySet[Row]) -> QuerySet[Row]:
    """The same rows with the transaction that wrote each last, which PostgreSQL keeps anyway."""
    version = RawSQL(f'"{rows.model._meta.db_table}".xmin::text', ())
    return cast(QuerySet[Row], rows.annotate(row_version=version))


def version_tag(row: Any) -> str:
    """The tag of a row read by `with_version`. Weak: what stands elsewhere may be shown with it."""
    return f'W/"{row.row_version}"'


def content_tag(content: bytes) -> str:
    """The tag of these bytes."""
    return f'"{hashlib.sha256(content).hexdigest()}"'


def not_modified(request: Request, tag: str) -> Response | None:
    """The answer to a client who has it already."""
    known = request.headers.get("If-None-Match")
    return Response(status=304, headers={"ETag": tag}) if known and _names(known, tag) else None


@contextmanager
def as_seen(request: Request, tag_now: Callable[[], str]) -> Iterator[None]:
    """Around a write. Without If-Match nothing more is done; with it, `tag_now` and the write are one transaction.

    `tag_now` locks what the tag is of; an empty tag: there is nothing. Raises VersionChanged, before the write, when the
    client has not seen what is there now.
    """
    seen = request.headers.get("If-Match")
    if seen is None:
        yield
        return
    with transaction.atomic():
        tag = tag_now()
        if not tag or not _names(seen, tag):
            raise VersionChanged("It is not what you saw any more: read it again. Nothing was changed.")
        yield


def locked_tag(row: Model) -> str:
    """The tag of this row as it is now, under its lock."""
    rows = type(row)._default_manager.filter(pk=row.pk)
    lock_one(rows.only("pk"))
    return version_tag(with_version(rows).only("pk").get())


def _names(header: str, tag: str) -> bool:
    """Whether the header has this tag. Proxies that pack an answer make its tag weak, so that is no difference."""
    named = [one.removeprefix("W/") for one in parse_etags(header)]
    return named == ["*"] or tag.removeprefix("W/") in named
