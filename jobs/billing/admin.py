"""Who may do what and has what: accounts, people, tokens."""

from typing import Any

from django.contrib import admin, messages
from django.contrib.auth.admin import GroupAdmin as BaseGroupAdmin
from django.contrib.auth.admin import UserAdmin as BaseUserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from unfold.admin import ModelAdmin, TabularInline
from unfold.decorators import action, display
from unfold.forms import AdminPasswordChangeForm, BaseDialogForm, UserChangeForm, UserCreationForm

from compute_site.core.admin import ReadOnlyAdmin, perform, to_list
from compute_site.core.showing import DASH, when
from jobs.billing import admin_money as money
from jobs.billing.charges import money_text
from jobs.billing.ledger import top_up
from jobs.billing.models import Account, Membership
from jobs.models import Token

for model in (User, Group):
    if admin.site.is_registered(model):
        admin.site.unregister(model)


PERSON_HELP = {
    "first_name": "For people to read; the site does not use it.",
    "last_name": "For people to read; the site does not use it.",
    "email": "Where to reach this person; the site sends nothing.",
    "last_login": "When this person last logged in with a password; written by the site.",
    "date_joined": "When this person was entered.",
}
GROUP_HELP = {
    "name": "Unique name; access rules of environments can name it, e.g. “research”.",
    "permissions": "What members of the group may do in the admin. Choose several with Ctrl.",
}


class MembershipInline(TabularInline):
    """The people of an account."""

    model = Membership
    extra = 0
    autocomplete_fields = ["user"]

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **options: Any) -> Any:
        """The model leaves it without help text."""
        return super().formfield_for_foreignkey(
            db_field, request, **{**options, "help_text": "Who submits and reads the account's jobs."}
        )


@admin.register(Account)
class AccountAdmin(ModelAdmin):
    """Accounts, their people and their money. An account with jobs or money is closed, not deleted."""

    list_display = ["name", "short", "members", "balance", when("created_at"), when("closed_at")]
    search_fields = ["name", "public_id"]
    readonly_fields = ["public_id", when("created_at"), "balances", "entries", "open_holds"]
    fieldsets = [
        (None, {"fields": ["name", "public_id", readonly_fields[1], "closed_at"]}),
        ("Money", {"fields": ["balances", "open_holds", "entries"]}),
    ]
    inlines = [MembershipInline]
    actions_detail = ["top_up"]

    @display(description="id", ordering="public_id")
    def short(self, account: Account) -> str:
        return account.short_id

    @display(description="members")
    def members(self, account: Account) -> str:
        return ", ".join(membership.user.get_username() for membership in account.memberships.all())

    @display(description="balance")
    def balance(self, account: Account) -> str:
        return ", ".join(str(row) for row in account.balances.all()) or DASH

    @display(description="balances")
    def balances(self, account: Account) -> str:
        return money.balances(account) if account.pk else DASH

    @display(description="last entries")
    def entries(self, account: Account) -> str:
        return money.entries(account) if account.pk else DASH

    @display(description="open holds")
    def open_holds(self, account: Account) -> str:
        return money.open_holds(account) if account.pk else DASH

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
    filter_horizontal = ()  # two lists side by side do not fit into a narrow window

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **options: Any) -> Any:
        """Django leaves some without help text."""
        if db_field.name in PERSON_HELP:
            options["help_text"] = PERSON_HELP[db_field.name]
        return super().formfield_for_dbfield(db_field, request, **options)


@admin.register(Group)
class GroupAdmin(BaseGroupAdmin, ModelAdmin):
    """Groups, in the look of the other pages."""

    filter_horizontal = ()

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **options: Any) -> Any:
        """Django leaves them without help text."""
        if db_field.name in GROUP_HELP:
            options["help_text"] = GROUP_HELP[db_field.name]
        return super().formfield_for_dbfield(db_field, request, **options)


@admin.register(Token)
class TokenAdmin(ReadOnlyAdmin):
    """Tokens are made by their owners, who fix their scopes; an operator can only revoke (delete) them."""

    list_display = ["start", "name", "user", "good_for", when("created"), when("expiry", "expires")]
    list_filter = ["user"]
    list_select_related = ["user"]
    search_fields = ["user__username", "name"]
    fields = list_display
    readonly_fields = fields
    actions = ["revoke"]
    actions_detail = ["revoke_token"]

    @display(description="token")
    def start(self, token: Token) -> str:
        return f"{token.token_key}…"

    @display(description="scopes")
    def good_for(self, token: Token) -> str:
        return ", ".join(token.scopes)

    @admin.action(description="Revoke selected tokens", permissions=["delete"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[Token]) -> None:
        """Whoever uses them is refused from now on."""
        self.log_deletions(request, queryset)
        count, _ = queryset.delete()
        messages.success(request, f"{count} tokens revoked.")

    @action(
        description="Revoke",
        permissions=["delete"],
        dialog={
            "title": "Revoke this token?",
            "description": "Whoever uses it is refused from now on. Its owner can make another one.",
            "form_class": BaseDialogForm,
            "form_submit_text": "Revoke the token",
        },
    )
    def revoke_token(self, request: HttpRequest, form: BaseDialogForm, object_id: str) -> HttpResponse:
        """The same for one token."""
        self.revoke(request, Token.objects.filter(pk=object_id))
        return to_list(self, request)

    def get_actions(self, request: HttpRequest) -> Any:
        """Revoking is deleting: one word for it is enough."""
        found = super().get_actions(request)
        found.pop("delete_selected", None)
        return found

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("jobs.delete_token")
