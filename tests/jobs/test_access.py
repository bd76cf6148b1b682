"""Access rules: none = open, any = closed to all others, each tier for itself."""

import pytest
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError

from compute_site.core.errors import NotAdmitted
from environments.models import AccessRule
from jobs.models import Job
from tests.factories import submit


def allow(site, kind: str, value: str, tier: str = "free") -> None:
    rule = AccessRule(environment=site.environment, tier=tier, kind=kind, value=value)
    rule.full_clean()
    rule.save()


def refused(user) -> None:
    with pytest.raises(NotAdmitted, match="The free tier of this environment is not open to you") as error:
        submit(user, tier="free")
    assert (error.value.code, error.value.field) == ("no_access", "environment")
    assert not Job.objects.exists()


def test_no_rule_is_open_and_a_rule_of_the_other_tier_closes_nothing(site, user, account):
    submit(user, tier="free")
    allow(site, "user", "somebody", tier="paid")
    submit(user, tier="free")


@pytest.mark.parametrize(
    ("kind", "value"), [("user", "bob"), ("group", "lab"), ("address", "0xAB"), ("access_list", "1:0x1")]
)
def test_any_rule_closes_to_all_others(site, user, account, kind, value):
    allow(site, kind, value)
    refused(user)


def test_by_name_and_by_group(site, user, account):
    allow(site, "group", "lab")
    refused(user)
    user.groups.add(Group.objects.create(name="lab"))
    submit(user, tier="free")
    user.groups.clear()
    allow(site, "user", "ada")
    submit(user, tier="free")


def test_an_address_means_the_same_in_any_case(site):
    allow(site, "address", "0xAbC")
    assert AccessRule.objects.get().value == "0xabc"
    with pytest.raises(ValidationError, match="already has this access rule"):
        allow(site, "address", "0xABC")
    with pytest.raises(ValidationError, match="whom the rule lets in"):
        allow(site, "user", " ")


def test_through_the_api(site, client_api, account):
    allow(site, "user", "bob")
    answer = client_api.post(
        "/api/v1/jobs", {"environment": "local/main", "command": ["true"], "tier": "free"}
    )
    assert answer.status_code == 403
    assert answer.json()["code"] == "no_access"
