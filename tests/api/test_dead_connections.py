"""A database that was restarted answers the next request: the connections that died with it are nobody's 503."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

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
    many = threading.Barrier(6)

    def use_one() -> None:
        connection.ensure_connection()
        many.wait(10)
        connection.close()

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(lambda _: use_one(), range(6)))
    connection.close()  # all back in the pool, idle
    wanted = {
        name: parameters[name]
        for name in ("host", "port", "user", "password", "dbname")
        if name in parameters
    }
    others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    with psycopg.connect(**wanted, autocommit=True) as other:
        killed = other.execute(f"SELECT count(pg_terminate_backend(pid)) {others}").fetchone()
        for _ in range(200):  # the signal is sent at once, its effect is not
            if other.execute(f"SELECT count(*) {others}").fetchone() == (0,):
                break
            time.sleep(0.01)
    assert killed is not None
    assert killed[0] >= 6
    assert client.get("/api/v1/jobs").status_code == 200
