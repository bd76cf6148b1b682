"""Whose wallet is whose, and the access lists: what access rules of kind address and list are judged by."""

from django.contrib import admin
from unfold.admin import TabularInline

from compute_site.core.admin import RefusingAdmin, StrictForm
from environments.models import AccessList, AccessListEntry, WalletAddress


@admin.register(WalletAddress)
class WalletAddressAdmin(RefusingAdmin):
    """Wallets that an operator vouches for."""

    list_display = ("address", "chain", "user")
    list_select_related = ("user",)
    search_fields = ("address", "user__username")
    fields = ("user", "chain", "address")


class EntryForm(StrictForm):
    """One entry of a list."""

    class Meta:
        model = AccessListEntry
        fields = ("address", "user")


class EntryInline(TabularInline):
    """Who is on the list."""

    model = AccessListEntry
    form = EntryForm
    extra = 1


@admin.register(AccessList)
class AccessListAdmin(RefusingAdmin):
    """Named lists of wallets and users."""

    inlines = (EntryInline,)
    list_display = ("name",)
    search_fields = ("name", "entries__address", "entries__user__username")
    fields = ("name",)
