"""Rows read by hand-written SQL are what Django reads, and locks by key are locks."""

import pytest
from django.core.exceptions import ObjectDoesNotExist
from django.db import transaction

from compute_site.core.db import lock_key, read_key, rows_of
from jobs.models import Attempt, Job
from tests.factories import submit, take


def values_of(row):
    return {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields}


def test_rows_are_those_that_django_reads(site, user, account):
    attempt = take(submit(user, labels={"a": "ü'%"}), "created")
    Attempt.objects.filter(pk=attempt.pk).update(effective={"deep": [1, {"x": None}]}, exit_facts={"é": 1.5})
    for model, pk in ((Job, attempt.job_id), (Attempt, attempt.pk)):
        assert values_of(read_key(model, pk)) == values_of(model.objects.get(pk=pk))
    found = rows_of(Job, "SELECT {columns} FROM {table} WHERE status = %(status)s", {"status": "preparing"})
    assert found == [attempt.job]
    assert not found[0]._state.adding


def test_a_key_that_is_not_there_is_an_error(site):
    with pytest.raises(ObjectDoesNotExist):
        read_key(Job, 0)
    with transaction.atomic(), pytest.raises(ObjectDoesNotExist):
        lock_key(Job, 0)


@pytest.mark.django_db(transaction=True)
def test_a_lock_by_key_outside_a_transaction_is_refused():
    with pytest.raises(transaction.TransactionManagementError):
        lock_key(Job, 1)
