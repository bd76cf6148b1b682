"""The host that is contended for, and how its site grows: more environments, more live reservations."""

from dataclasses import dataclass
from decimal import Decimal

import psycopg
from psycopg import sql

from environments.models import Core, Engine, Host
from environments.setup import create_environment

MAIN, CROWD = 16, 500  # cores of the environment that is contended for, and of the one that others hold
FEW, MANY = 10, 1000  # environments
LIVE = 10  # reservations that stay, where there are not `CROWD`


@dataclass(frozen=True)
class Place:
    """Keys of the two environments."""

    main: int
    crowd: int


def make_place() -> Place:
    """A host that exists only in rows, with `FEW` environments: `main`, `crowd`, and others with one core each."""
    count = MAIN + CROWD + MANY
    host = Host.objects.create(name="rows", cpu_count=count, memory_mib=2**20, disk_mib=10**7)
    Core.objects.bulk_create(Core(host=host, index=index) for index in range(count))
    engine = Engine.objects.create(host=host, name="rows", endpoint="unix:///nowhere")
    sizes = {"main": MAIN, "crowd": CROWD, **{f"other-{number}": 1 for number in range(FEW - 2)}}
    made = {
        slug: create_environment(
            engine, slug, cpu=cores, ram_mib=2**18, disk_mib=10**6, prices={"cpu": Decimal("0.01")}
        ).pk
        for slug, cores in sizes.items()
    }
    return Place(made["main"], made["crowd"])


def add_environments(url: str, count: int) -> None:
    """`count` copies of the smallest environment in the database at `url`, each with a free core of the host."""
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT id FROM environments_environment WHERE slug = 'other-0'").fetchone()
        assert row is not None
        _copy(
            connection, "environments_environment", f"id = {row[0]}", count,
            {"public_id": "gen_random_uuid()", "slug": "'more-' || n"},
        )  # fmt: skip
        made = "(SELECT id FROM environments_environment WHERE slug = 'more-' || n)"
        _copy(
            connection, "environments_resource", f"environment_id = {row[0]}", count, {"environment_id": made}
        )
        connection.execute("""
            UPDATE environments_core c SET environment_id = e.id
              FROM (SELECT id, row_number() OVER (ORDER BY id) FROM environments_environment WHERE slug LIKE 'more-%') e
              JOIN (SELECT id, row_number() OVER (ORDER BY index) FROM environments_core WHERE environment_id IS NULL) f
             USING (row_number) WHERE c.id = f.id""")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


def _copy(
    connection: psycopg.Connection, table: str, which: str, count: int, changes: dict[str, str]
) -> None:
    """Rows of a table again, `count` times, with some columns changed; `n` counts from 1."""
    found = connection.execute(
        "SELECT column_name FROM information_schema.columns WHERE table_name = %s AND column_name <> 'id'",
        [table],
    )
    names = [row[0] for row in found]
    values = [sql.SQL(changes[name]) if name in changes else sql.Identifier(name) for name in names]
    connection.execute(
        sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {}, generate_series(1, {}) AS n WHERE {}").format(
            sql.Identifier(table),
            sql.SQL(", ").join(map(sql.Identifier, names)),
            sql.SQL(", ").join(values),
            sql.Identifier(table),
            sql.Literal(count),
            sql.SQL(which),
        )
    )
