"""Who may do what: accounts, people, tokens."""

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as BaseGroupAdmin
from django.contrib.auth.admin import UserAdmin as BaseUserAdmin
from django.contrib.auth.models import Group, User
from django.http import HttpRequest
from knox.models import AuthToken
from unfold.admin import ModelAdmin, TabularInline
from unfold.decorators import display
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from compute_site.core.admin import ReadOnlyAdmin
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
    """Accounts and their people. An account with jobs is closed, not deleted."""

    list_display = ["name", "short_id", "members", "created_at", "closed_at"]
    search_fields = ["name", "public_id"]
    readonly_fields = ["public_id", "created_at"]
    inlines = [MembershipInline]

    @display(description="members")
    def members(self, account: Account) -> str:
        return ", ".join(membership.user.get_username() for membership in account.memberships.all())

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).prefetch_related("memberships__user")


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
