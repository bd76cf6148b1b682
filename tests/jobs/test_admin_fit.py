"""“What would fit now” answers as a job that is submitted would fare, and writes nothing."""

import pytest
from django.contrib.auth.models import Permission

from environments.editing import drain
from environments.models import AccessRule, Environment, FreeTier, Reservation
from jobs.admin_fit import verdict
from jobs.models import Job, JobEvent
from jobs.pending import pending_reason
from jobs.quoting import fit
from jobs.spec import Spec
from tests.factories import make_user, submit, take


def asked(environment, tier="paid", **resources):
    fresh = Environment.objects.select_related("engine__host", "free_tier").get(pk=environment.pk)
    return fit(fresh, Spec(environment=str(fresh), resources=resources, tier=tier))


@pytest.fixture
def environment(site) -> Environment:
    return site.environment


def test_it_starts(environment):
    found = asked(environment, cpu=3)
    assert verdict(found) == ("starts", ["It would start now."])
    assert found.job is not None
    assert found.job.terms["resources"] == {"cpu": 3, "ram": 64, "disk": 64}
    assert (found.price_per_minute, found.maximum_cost) == (3, 180)


def test_it_waits_as_a_job_does(environment, user, account):
    take(submit(user, resources={"cpu": 2}))
    word, (text,) = verdict(asked(environment, cpu=3))
    assert word == "waits"
    assert "needs 3 cpu, 2 free" in text
    job = submit(user, resources={"cpu": 3})
    queued = Job.objects.select_related("environment__engine__host").get(pk=job.pk)
    assert text.startswith(f"It would wait: {pending_reason(queued)}. It would start in ")


def test_it_is_refused_as_a_job_is(environment):
    assert verdict(asked(environment, cpu=9)) == ("refused", ["cpu: asked 9, at most 4 per job."])
    assert verdict(asked(environment, tier="free", cpu=3)) == (
        "refused",
        ["cpu: asked 3, at most 2 per job in the free tier."],
    )
    drain(environment)
    assert verdict(asked(environment)) == (
        "refused",
        ["This environment is draining: it takes no new jobs."],
    )


def test_no_free_tier(environment):
    FreeTier.objects.all().delete()
    assert verdict(asked(environment, tier="free")) == ("refused", ["This environment has no free tier."])


class TestPage:
    def page(self, client, environment, **asked):
        return client.get(f"/admin/jobs/job/would-fit/{environment.pk}/", asked)

    def test_a_viewer_asks_and_nothing_is_written(self, client, environment):
        viewer = make_user("vera")
        viewer.is_staff = True
        viewer.save()
        client.force_login(viewer)
        assert self.page(client, environment).status_code == 403
        viewer.user_permissions.add(Permission.objects.get(codename="view_environment"))
        AccessRule.objects.create(environment=environment, tier="free", kind="user", value="ada")
        assert self.page(client, environment).status_code == 200
        answer = self.page(client, environment, tier="free", **{"resource-cpu": 2}).content.decode()
        assert "It would start now." in answer
        assert "It costs nothing." in answer
        assert "Only those whom its access rules (1) name may use this tier." in answer
        assert not any(model.objects.exists() for model in (Job, JobEvent, Reservation))

    def test_nonsense_is_refused_beside_its_field(self, admin_client, environment):
        answer = self.page(admin_client, environment, tier="paid", **{"resource-cpu": "-1"})
        assert answer.context["form"].errors == {
            "resource-cpu": ["Ensure this value is greater than or equal to 0."]
        }
        assert "verdict" not in answer.context
