"""Accounts at providers and what they offer; staff only."""

from dataclasses import fields
from typing import Any

from django.db import transaction
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.generics import get_object_or_404
from rest_framework.permissions import IsAdminUser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from compute_site.core.authentication import HasScope
from compute_site.core.models import save_clean
from compute_site.core.scopes import Scope
from providers.api.refusals import told
from providers.api.serializers import AccountDetail, AccountRequest, KeyRequest, OfferDetail
from providers.base import Offer
from providers.errors import CostGuardrailError
from providers.guardrails import price_bound
from providers.models import ProviderAccount
from providers.vendors import connected


class Accounts(APIView):
    """All accounts."""

    scope = Scope.ADMIN
    permission_classes = [IsAdminUser, HasScope]

    @extend_schema(operation_id="provider_accounts_list", responses=AccountDetail(many=True))
    def get(self, request: Request) -> Response:
        """The accounts with their budgets, without their keys."""
        return Response(AccountDetail(ProviderAccount.objects.all(), many=True).data)

    @extend_schema(
        operation_id="provider_accounts_create", request=AccountRequest, responses={201: AccountDetail}
    )
    def post(self, request: Request) -> Response:
        """A new account; its key is sealed at once and never shown."""
        asked = AccountRequest(data=request.data)
        asked.is_valid(raise_exception=True)
        wanted = dict(asked.validated_data)
        key = wanted.pop("key")
        with transaction.atomic():
            account = save_clean(ProviderAccount(**wanted))
            account.set_key(key)
        return Response(AccountDetail(account).data, status=201)


class AccountKey(APIView):
    """The key of an account: it only goes in."""

    scope = Scope.ADMIN
    permission_classes = [IsAdminUser, HasScope]

    @extend_schema(operation_id="provider_accounts_key", request=KeyRequest, responses={204: None})
    def put(self, request: Request, public_id: Any) -> Response:
        """Replace the key."""
        asked = KeyRequest(data=request.data)
        asked.is_valid(raise_exception=True)
        get_object_or_404(ProviderAccount, public_id=public_id).set_key(asked.validated_data["key"])
        return Response(status=204)


class Offers(APIView):
    """What can be rented now."""

    scope = Scope.ADMIN
    permission_classes = [IsAdminUser, HasScope]

    @extend_schema(
        operation_id="provider_offers_list",
        parameters=[
            OpenApiParameter("account", str, description="Name of an account; none = all that are enabled."),
            OpenApiParameter("max_price", str, description="USD per GPU and hour."),
            OpenApiParameter("gpu_type", str, description="Part of the type, any case."),
        ],
        responses=OfferDetail(many=True),
    )
    def get(self, request: Request) -> Response:
        """The offers of one account or of all, cheapest first; asks the providers now."""
        accounts = ProviderAccount.objects.filter(enabled=True).exclude(sealed_key="")
        if name := request.query_params.get("account"):
            accounts = accounts.filter(name=name)
        kind = request.query_params.get("gpu_type", "").lower()
        limit = _price(request.query_params.get("max_price"))
        found = []
        with told():
            for account in accounts:
                with connected(account) as provider:
                    found += [(account.name, offer) for offer in provider.list_offers(limit)]
        shown = [(name, offer) for name, offer in found if kind in offer.gpu_type.lower()]
        shown.sort(key=lambda pair: (pair[1].price_per_gpu_hour, pair[1].id))
        rows = [{"account": name, **_fields(offer)} for name, offer in shown]
        return Response(OfferDetail(rows, many=True).data)


def _fields(offer: Offer) -> dict[str, Any]:
    return {field.name: getattr(offer, field.name) for field in fields(offer) if field.name != "raw"}


def _price(text: str | None) -> Any:
    if not text:
        return None
    try:
        return price_bound(text)
    except CostGuardrailError as error:
        raise ValidationError({"max_price": str(error)}) from None
