"""What a client reads of money: decimal text, exact, never a float."""

from typing import Any

from rest_framework import serializers

from jobs.billing.charges import EXACT, money_text
from jobs.billing.models import Account, Balance, Hold, LedgerEntry


class Money(serializers.CharField):
    """An amount of money as decimal text."""

    def to_representation(self, value: Any) -> str:
        return money_text(value)


class BalanceDetail(serializers.ModelSerializer):
    """What an account has in one currency."""

    amount = Money(read_only=True, help_text="All that it has.")
    held = Money(read_only=True, help_text="Of it, set aside for jobs that have not ended.")
    free = serializers.SerializerMethodField(help_text="What new jobs can be paid from: amount less held.")

    class Meta:
        model = Balance
        fields = ["currency", "amount", "held", "free"]
        read_only_fields = fields

    def get_free(self, balance: Balance) -> str:
        return money_text(EXACT.subtract(balance.amount, balance.held))


class AccountMoney(serializers.ModelSerializer):
    """An account with its balances."""

    id = serializers.UUIDField(source="public_id", read_only=True)
    balances = BalanceDetail(many=True, read_only=True)

    class Meta:
        model = Account
        fields = ["id", "name", "created_at", "closed_at", "balances"]
        read_only_fields = fields


class LedgerLine(serializers.ModelSerializer):
    """One ledger entry: positive came in, negative went out."""

    kind = serializers.CharField(source="transaction.kind", read_only=True, help_text="top_up or capture.")
    currency = serializers.CharField(source="transaction.currency", read_only=True)
    amount = Money(read_only=True)
    reference = serializers.CharField(source="transaction.reference", read_only=True)
    job = serializers.UUIDField(
        source="transaction.job.public_id",
        read_only=True,
        allow_null=True,
        default=None,
        help_text="What it paid.",
    )
    created_at = serializers.DateTimeField(source="transaction.created_at", read_only=True)

    class Meta:
        model = LedgerEntry
        fields = ["id", "kind", "currency", "amount", "reference", "job", "created_at"]
        read_only_fields = fields


class HoldDetail(serializers.ModelSerializer):
    """Money set aside for one job."""

    job = serializers.UUIDField(source="job.public_id", read_only=True)
    amount = Money(read_only=True, help_text="Set aside at admission.")
    captured = Money(read_only=True, help_text="Paid in the end; the rest is free again.")

    class Meta:
        model = Hold
        fields = ["id", "job", "currency", "amount", "captured", "status", "created_at", "ended_at"]
        read_only_fields = fields


class CostDetail(serializers.Serializer):
    """Money of one job."""

    currency = serializers.CharField()
    amount = Money(help_text="Paid, once final; before that, what it would cost if it ended now.")
    held = Money(help_text="Set aside until it ends: the most that it may cost.")
    final = serializers.BooleanField()
