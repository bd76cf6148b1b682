"""Who may do what and has what: accounts, people, tokens."""

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as BaseGroupAdmin
from django.contrib.auth.admin import UserAdmin as BaseUserAdmin
from django.contrib.auth.models import Group, User
from django.http import HttpRequest, HttpResponse
from knox.models import AuthToken
from unfold.admin import ModelAdmin, TabularInline
from unfold.decorators import action, display
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from compute_site.core.admin import ReadOnlyAdmin, perform
from jobs import admin_pages as pages
from jobs.billing import admin_money as money
from jobs.billing.charges import money_text
from jobs.billing.ledger import top_up
from jobs.billing.models import Account, Membership

for model in (User, Group, AuthToken):
    if admin.site.is_registered(model):
        admin.site.unregister(model)


class MembershipInline(TabularInline):
    """The people of an account."""

    model = Membership
    extra = 0
    autocomplete_fields = ["user"]


@admin.register(Account)
class AccountAdmin(ModelAdmin):
    """Accounts, their people and their money. An account with jobs or money is closed, not deleted."""

    list_display = ["name", "short_id", "members", "balance", "created_at", "closed_at"]
    search_fields = ["name", "public_id"]
    readonly_fields = ["public_id", "created_at", "balances", "entries", "open_holds"]
    fieldsets = [
        (None, {"fields": ["name", "public_id", "created_at", "closed_at"]}),
        ("Money", {"fields": ["balances", "open_holds", "entries"]}),
    ]
    inlines = [MembershipInline]
    actions_detail = ["top_up"]

    @display(description="members")
    def members(self, account: Account) -> str:
        return ", ".join(membership.user.get_username() for membership in account.memberships.all())

    @display(description="balance")
    def balance(self, account: Account) -> str:
        return ", ".join(str(row) for row in account.balances.all()) or pages.DASH

    @display(description="balances")
    def balances(self, account: Account) -> str:
        return money.balances(account) if account.pk else pages.DASH

    @display(description="last entries")
    def entries(self, account: Account) -> str:
        return money.entries(account) if account.pk else pages.DASH

    @display(description="open holds")
    def open_holds(self, account: Account) -> str:
        return money.open_holds(account) if account.pk else pages.DASH

    @action(
        description="Top up",
        permissions=["top_up"],
        dialog={
            "title": "Top up this account?",
            "description": "For money that was paid outside the site. It cannot be undone, only spent.",
            "form_class": money.TopUpForm,
            "form_submit_text": "Top up",
        },
    )
    def top_up(self, request: HttpRequest, form: money.TopUpForm, object_id: int) -> HttpResponse:
        """Credit the account, once for each reference."""
        asked = form.cleaned_data
        by = request.user.get_username()
        return perform(
            self,
            request,
            object_id,
            lambda account: top_up(
                account, asked["amount"], asked["currency"], reference=asked["reference"], by=by
            ),
            f"topped up by {money_text(asked['amount'])} {asked['currency']}, reference {asked['reference']}",
        )

    def has_top_up_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return request.user.has_perm("billing.add_ledgertransaction")

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).prefetch_related("memberships__user", "balances")


@admin.register(User)
class UserAdmin(BaseUserAdmin, ModelAdmin):
    """People, in the look of the other pages."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm


@admin.register(Group)
class GroupAdmin(BaseGroupAdmin, ModelAdmin):
    """Groups, in the look of the other pages."""


@admin.register(AuthToken)
class AuthTokenAdmin(ReadOnlyAdmin):
    """Tokens are made by their owners; an operator can only revoke (delete) them."""

    list_display = ["start", "user", "created", "expiry"]
    search_fields = ["user__username"]
    fields = ["start", "user", "created", "expiry"]

    @display(description="token")
    def start(self, token: AuthToken) -> str:
        return f"{token.token_key}…"

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("knox.delete_authtoken")
