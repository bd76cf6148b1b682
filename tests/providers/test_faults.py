"""Faults seen in the field: nothing leaks, nothing of others is ended, nothing is called gone too early."""

import pytest

from compute_site.embedded.fakes import Fault
from providers import ending, observing, renting, sweeping
from providers.models import Orphan, Pod
from providers.transitions import move_pod
from tests.providers.conftest import (
    START,
    ask,
    check,
    create_path,
    fresh,
    later,
    list_path,
    make_account,
    observe,
    rent,
    row_path,
    running,
    there,
)

LOST = [
    {"status": 502, "body": b"bad gateway"},
    {"drop": True},
    {"status": 200, "body": b"<html>"},
    {"status": 200, "body": b"{}"},
]


def sweep(now):
    sweeping.sweep_orphans(now=now)


@pytest.mark.parametrize("fault", LOST, ids=str)
def test_an_answer_lost_after_the_create(either, fault):
    fake, account = either
    older = next(iter(older_pod_of_the_same_name(fake, "x")))
    fake.faults.append(Fault("POST", create_path(fake), after=True, **fault))
    pod = rent(account)
    assert (pod.status, pod.provider_id, pod.known_ids) == ("unknown", "", [older])
    assert len(there(fake)) == 2
    there(fake)[older]["pod_name" if "pod_name" in there(fake)[older] else "name"] = pod.name
    observe()
    pod = fresh(pod)
    assert pod.status == "provisioning"
    assert pod.provider_id not in (older, "")
    check(later(hours=2))
    for minute in range(3):
        observe(later(hours=2, minutes=minute))
    assert fresh(pod).status == "terminated"
    assert list(there(fake)) == [older]  # Never by its name alone.


def older_pod_of_the_same_name(fake, name):
    """A pod that somebody else rented with the same account."""
    if hasattr(fake, "executors"):
        fake.templates["t"] = {}
        fake._create({"pod_name": name, "template_id": "t"}, fake.executors[0], 1)
    else:
        row = {"name": name, "type": "RENTAL", "image": "x", "resource_name": "h200-small"}
        fake._register(type("Request", (), {"body": row}))
    return there(fake)


def test_an_answer_lost_and_nothing_created(either):
    fake, account = either
    fake.faults.append(Fault("POST", create_path(fake), status=502))
    pod = rent(account)
    observe(later(minutes=14), times=5)
    assert (fresh(pod).status, fresh(pod).absent_answers) == ("unknown", 0)
    observe(later(minutes=15))
    assert (fresh(pod).status, fresh(pod).end_reason) == ("terminating", "never_appeared")
    observe(later(minutes=16), times=2)
    assert fresh(pod).status == "terminating"
    observe(later(minutes=17))
    assert fresh(pod).status == "terminated"
    assert fake.seen("DELETE", row_path(fake)) == []


def test_a_create_that_shows_up_late_is_ended_all_the_same(at_lium, lium):
    lium.faults.append(Fault("POST", create_path(lium), status=502))
    pod = rent(at_lium)
    observe(later(minutes=15))
    observe(later(minutes=16), times=2)
    older_pod_of_the_same_name(lium, pod.name)
    observe(later(minutes=16))
    assert fresh(pod).provider_id == next(iter(lium.pods))
    check(later(minutes=17))
    assert not lium.pods
    observe(later(minutes=18), times=3)
    assert fresh(pod).status == "terminated"


def test_a_create_that_shows_up_after_that_is_an_orphan(at_lium, lium):
    lium.faults.append(Fault("POST", create_path(lium), status=502))
    pod = rent(at_lium)
    observe(later(minutes=15), times=4)
    assert fresh(pod).status == "terminated"
    older_pod_of_the_same_name(lium, pod.name)
    sweep(later(minutes=20))
    sweep(later(minutes=23))
    assert not lium.pods


def test_a_termination_that_answers_200_and_keeps_listing(either, settings):
    fake, account = either
    fake.keeps_listing = True
    pod = running(account)
    check(later(hours=2))
    assert fresh(pod).status == "terminating"
    minutes = list(range(0, 60, 2))
    for minute in minutes:
        observe(later(hours=2, minutes=minute))
        check(later(hours=2, minutes=minute))
    pod = fresh(pod)
    assert (pod.status, pod.absent_answers) == ("terminating", 0)
    calls = len(fake.seen("DELETE", row_path(fake)))
    assert 8 <= calls < len(minutes)  # Again and again, with longer and longer pauses.
    assert pod.terminate_calls == calls
    assert pod.alarm_at is not None
    assert pod.events.filter(kind="alarm", message__contains="USD").count() == 1
    fake.keeps_listing = False
    check(later(hours=4))
    observe(later(hours=4), times=3)
    assert (fresh(pod).status, there(fake)) == ("terminated", {})


def test_a_pod_that_is_listed_again_starts_the_count_anew(either):
    fake, account = either
    pod = running(account)
    fake.keeps_listing = True
    check(later(hours=2))
    row = there(fake).pop(pod.provider_id)
    observe(later(hours=2), times=2)
    assert fresh(pod).absent_answers == 2
    there(fake)[pod.provider_id] = row
    observe(later(hours=2))
    assert fresh(pod).absent_answers == 0
    del there(fake)[pod.provider_id]
    observe(later(hours=2), times=2)
    assert fresh(pod).status == "terminating"


BROKEN = [
    {"status": 500},
    {"status": 429, "body": b"{}"},
    {"status": 200, "body": b""},
    {"status": 200, "body": b'{"items": {}}'},
]


@pytest.mark.parametrize("fault", BROKEN, ids=str)
def test_a_listing_that_errors_is_never_absence(either, fault):
    fake, account = either
    alive, dying = running(account), running(account)
    ending.ask_end(dying, "operator", now=START)
    check(START)
    observe(times=2)
    assert fresh(dying).absent_answers == 2
    fake.faults.append(Fault("GET", list_path(fake), times=10, **fault))
    observe(times=5)
    sweep(later(minutes=10))
    assert (fresh(alive).status, fresh(alive).absent_answers) == ("running", 0)
    assert (fresh(dying).status, fresh(dying).absent_answers) == ("terminating", 2)
    account.refresh_from_db()
    assert account.trouble
    assert not Orphan.objects.exists()
    # A broken listing rents nothing either.
    sent = len(fake.seen("POST", create_path(fake)))
    rent(account)
    assert len(fake.seen("POST", create_path(fake))) == sent
    fake.faults.clear()
    observe()
    assert fresh(dying).status == "terminated"
    account.refresh_from_db()
    assert account.trouble == ""


def test_an_answer_that_names_the_older_pod_ends_neither_of_them_wrongly(at_lium, lium):
    older = next(iter(older_pod_of_the_same_name(lium, "x")))
    reply = f'{{"success": true, "pod_id": "{older}"}}'.encode()
    lium.faults.append(Fault("POST", create_path(lium), after=True, status=200, body=reply))
    pod = rent(at_lium)
    assert (pod.status, pod.provider_id) == ("unknown", "")
    observe()
    check(later(hours=2))
    assert list(lium.pods) == [older]


def test_a_process_that_died_in_the_middle_of_the_rent(either):
    fake, account = either
    pod = ask(account)

    class Died(BaseException):
        pass

    def die(*_):
        raise Died

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(renting, "_check_new", die)
        with pytest.raises(Died):
            renting.rent(pod.pk, now=START)
    assert (fresh(pod).status, len(there(fake))) == ("requested", 1)
    renting.rent_due(now=later(minutes=1))  # Nobody rents it a second time.
    observe(later(minutes=9))
    assert (fresh(pod).status, len(there(fake))) == ("requested", 1)
    observe(later(minutes=10))
    assert fresh(pod).status == "provisioning"
    assert fresh(pod).provider_id in there(fake)


def test_a_cleaning_up_that_fails_is_pursued_by_the_row(either):
    fake, account = either
    fake.faults += [Fault("GET", row_path(fake), status=500), Fault("DELETE", row_path(fake), times=50)]
    pod = rent(account)
    assert (pod.status, pod.end_reason) == ("terminating", "provider_unavailable")
    assert [pod.provider_id] == list(there(fake))
    fake.faults.clear()
    check(later(minutes=1))
    observe(later(minutes=1), times=3)
    assert (fresh(pod).status, there(fake)) == ("terminated", {})


def test_a_vanished_pod_is_not_gone_at_once(either):
    fake, account = either
    pod = running(account)
    row = there(fake).pop(pod.provider_id)
    observe(times=2)
    assert fresh(pod).status == "running"
    observe()
    assert (fresh(pod).status, fresh(pod).end_reason) == ("terminating", "vanished")
    there(fake)[pod.provider_id] = row
    check(START)
    assert not there(fake)


def test_a_terminate_of_a_gone_pod_is_a_success(either):
    fake, account = either
    pod = running(account)
    there(fake).clear()
    check(later(hours=2))
    assert fresh(pod).last_error == ""
    assert len(fake.seen("DELETE", row_path(fake))) == 1


def test_orphans_are_ours_by_name_and_get_a_grace(either, settings):
    fake, account = either
    live = running(account)
    older_pod_of_the_same_name(fake, f"{settings.SITE_ID}-0123456789abcdef01")
    for name in ("somebodys", f"{settings.SITE_ID}-mine", "other-0123456789abcdef01"):
        older_pod_of_the_same_name(fake, name)
    assert len(there(fake)) == 5
    sweep(START)
    sweep(later(seconds=119))
    assert len(there(fake)) == 5
    fake.keeps_listing = True
    sweep(later(seconds=120))
    sweep(later(seconds=150))
    fake.keeps_listing = False
    sweep(later(seconds=180))
    assert len(there(fake)) == 4
    orphan = Orphan.objects.get()
    assert (orphan.terminate_calls, orphan.gone_at) == (3, None)
    for _ in range(3):
        sweep(later(seconds=200))
    orphan.refresh_from_db()
    assert orphan.gone_at is not None
    assert fresh(live).status == "running"


def test_two_accounts_of_ours_that_are_one_at_the_provider(at_lium, lium):
    pod = running(at_lium)
    make_account(lium, "lium", name="the same again")
    for minutes in (0, 10, 20):
        sweep(later(minutes=minutes))
    assert list(lium.pods) == [pod.provider_id]
    assert not Orphan.objects.exists()


def test_an_id_that_comes_with_the_last_absence_is_not_called_gone(at_lium, lium, monkeypatch):
    lium.faults.append(Fault("POST", create_path(lium), status=502))
    pod = rent(at_lium)
    observe(later(minutes=15), times=3)

    def arrives_first(row, to, **fields):
        Pod.objects.filter(pk=row.pk).update(provider_id="late", absent_answers=0)
        return move_pod(row, to, **fields)

    monkeypatch.setattr("providers.observing.move_pod", arrives_first)
    observe(later(minutes=15))
    assert (fresh(pod).status, fresh(pod).provider_id) == ("terminating", "late")


def test_an_orphan_that_a_row_takes_back_is_none(at_lium, lium):
    pod = running(at_lium)
    Orphan.objects.create(account=at_lium, provider_id=pod.provider_id, name=pod.name)
    sweep(later(minutes=10))
    assert Orphan.objects.get().gone_at is not None
    assert list(lium.pods) == [pod.provider_id]


def test_every_pass_may_be_repeated(either):
    _fake, account = either
    pod = running(account)
    before, events = Pod.objects.values().get(), pod.events.count()
    for _ in range(3):
        observing.observe_pods(now=START)
        ending.check_pod_terminations(now=START)
        sweep(START)
        renting.rent_due(now=START)
    assert (Pod.objects.values().get(), pod.events.count()) == (before, events)
