"""Routes of accounts: what one has, what came in and went out, what is set aside. Another's account is not there."""

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.generics import GenericAPIView, get_object_or_404
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from compute_site.core.scopes import Scope
from jobs.api.account_serializers import AccountMoney, HoldDetail, LedgerLine
from jobs.api.pagination import JobPages
from jobs.billing.models import Account, Hold, LedgerEntry


def own_accounts(request: Request) -> QuerySet[Account]:
    """The accounts of which the caller is a member."""
    return Account.objects.filter(memberships__user=request.user.pk).prefetch_related("balances")


class AccountList(APIView):
    """The caller's accounts."""

    scope = Scope.READ

    @extend_schema(operation_id="accounts_list", responses=AccountMoney(many=True))
    def get(self, request: Request) -> Response:
        """The caller's accounts with their balances, one for each currency."""
        return Response(AccountMoney(own_accounts(request), many=True).data)


class AccountOne(RetrieveModelMixin, GenericAPIView):
    """One account."""

    scope = Scope.READ
    serializer_class = AccountMoney
    lookup_field = "public_id"

    def get_queryset(self) -> QuerySet[Account]:
        return own_accounts(self.request)

    def get(self, request: Request, public_id: Any) -> Response:
        """One account with its balances."""
        return self.retrieve(request)


class AccountLedger(ListModelMixin, GenericAPIView):
    """What came in and went out."""

    scope = Scope.READ
    serializer_class = LedgerLine
    pagination_class = JobPages
    filter_backends = []

    def get_queryset(self) -> QuerySet[LedgerEntry]:
        if getattr(self, "swagger_fake_view", False):
            return LedgerEntry.objects.none()
        account = get_object_or_404(own_accounts(self.request), public_id=self.kwargs["public_id"])
        return LedgerEntry.objects.filter(account=account).select_related("transaction__job")

    def get(self, request: Request, public_id: Any) -> Response:
        """The account's ledger entries, newest first."""
        return self.list(request)


class AccountHolds(ListModelMixin, GenericAPIView):
    """What is, or was, set aside for jobs."""

    scope = Scope.READ
    serializer_class = HoldDetail
    pagination_class = JobPages
    filter_backends = []

    def get_queryset(self) -> QuerySet[Hold]:
        if getattr(self, "swagger_fake_view", False):
            return Hold.objects.none()
        account = get_object_or_404(own_accounts(self.request), public_id=self.kwargs["public_id"])
        return Hold.objects.filter(account=account).select_related("job")

    def get(self, request: Request, public_id: Any) -> Response:
        """The account's holds, newest first."""
        return self.list(request)
