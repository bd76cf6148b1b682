"""A database that was restarted answers the next request: the connections that died with it are nobody's 503."""

import psycopg
import pytest
from django.db import connection

from tests.factories import client_of, make_account, make_user


@pytest.mark.django_db(transaction=True)
def test_connections_that_died_while_they_were_idle_cost_no_request():
    user = make_user("ada")
    make_account("ada's", user)
    client = client_of(user)
    parameters = connection.get_connection_params()
    connection.close()  # back into the pool, idle
    wanted = {
        name: parameters[name]
        for name in ("host", "port", "user", "password", "dbname")
        if name in parameters
    }
    with psycopg.connect(**wanted, autocommit=True) as other:
        killed = other.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchone()
    assert killed is not None
    assert killed[0] >= 1
    assert client.get("/api/v1/jobs").status_code == 200
