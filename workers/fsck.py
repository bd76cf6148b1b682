"""fsck: every disagreement between rows, the ledger and what is on the engines. Changes nothing."""

from collections.abc import Iterator
from datetime import timedelta

from django.conf import settings
from django.db import connection

from compute_site.core.db import database_now
from compute_site.core.errors import SiteError
from environments.models import Engine, EngineKind, EngineState
from jobs.models import Attempt, AttemptStatus
from jobs.models.attempt import FINAL
from jobs.networks import was_promised
from workers.engines import Connection, connect
from workers.sandbox import cgroup
from workers.sandbox.docker import ContainerFacts
from workers.sandbox.gate import SUFFIX, gate_name
from workers.sandbox.probe import is_probe
from workers.sweep import as_uuid

SETTLING = timedelta(seconds=60)  # what is on its way is no disagreement

# Each statement finds rows that contradict each other; the columns fill the words.
ROW_CHECKS = {
    "job {} is {} without a live attempt": """
        SELECT j.public_id, j.status FROM jobs_job j WHERE j.status IN ('preparing', 'running', 'collecting')
           AND NOT EXISTS (SELECT FROM jobs_attempt a WHERE a.job_id = j.id AND a.finished_at IS NULL)""",
    "job {} is {} with a live attempt": """
        SELECT j.public_id, j.status FROM jobs_job j WHERE (j.finished_at IS NOT NULL OR j.status = 'queued')
           AND EXISTS (SELECT FROM jobs_attempt a WHERE a.job_id = j.id AND a.finished_at IS NULL)""",
    "reservation of attempt {} is live although the attempt was cleaned": """
        SELECT r.holder FROM environments_reservation r JOIN jobs_attempt a ON a.public_id = r.holder
         WHERE r.released_at IS NULL AND a.cleaned_at IS NOT NULL""",
    "reservation of {} belongs to no attempt": """
        SELECT r.holder FROM environments_reservation r
         WHERE NOT EXISTS (SELECT FROM jobs_attempt a WHERE a.public_id = r.holder)""",
    "attempt {} is not cleaned and holds no reservation": """
        SELECT a.public_id FROM jobs_attempt a JOIN environments_engine g ON g.id = a.engine_id
         WHERE a.cleaned_at IS NULL AND g.kind = 'docker'
           AND NOT EXISTS (SELECT FROM environments_reservation r WHERE r.holder = a.public_id AND r.released_at IS NULL)""",
    "reservation of {} is released but holds cores": """
        SELECT r.holder FROM environments_reservation r JOIN environments_reservedcore c ON c.reservation_id = r.id
         WHERE r.released_at IS NOT NULL AND c.released_at IS NULL""",
    "reservation of {} is released but holds devices": """
        SELECT r.holder FROM environments_reservation r JOIN environments_reserveddevice d ON d.reservation_id = r.id
         WHERE r.released_at IS NOT NULL AND d.released_at IS NULL""",
    "reservation of {} is released but holds amounts": """
        SELECT r.holder FROM environments_reservation r JOIN environments_reservedamount x ON x.reservation_id = r.id
         WHERE r.released_at IS NOT NULL AND x.released_at IS NULL""",
    "slots of worker {} are live although it has ended": """
        SELECT s.holder FROM environments_slots s LEFT JOIN workers_worker w ON w.slots_id = s.id
         WHERE s.released_at IS NULL AND (w.id IS NULL OR w.ended_at IS NOT NULL)""",
    "resource {} of environment {}: {} in use of {}": """
        SELECT r.slug, e.slug, sum(x.amount), r.total FROM environments_reservedamount x
          JOIN environments_resource r ON r.id = x.resource_id JOIN environments_environment e ON e.id = r.environment_id
         WHERE x.released_at IS NULL GROUP BY r.id, e.id HAVING sum(x.amount) > r.total""",
    "reservation of {} is of a benchmark, which runs alone, and {} began beside it": """
        SELECT r.holder, x.holder FROM environments_reservation r
          JOIN environments_environment e ON e.id = r.environment_id AND e.benchmark
          JOIN environments_reservation x ON x.host_id = r.host_id AND x.id <> r.id
         WHERE r.exited_at IS NULL AND r.released_at IS NULL AND x.released_at IS NULL""",
    "core {} of host {} belongs to benchmark environment {}, which owns none": """
        SELECT c.index, h.name, e.slug FROM environments_core c JOIN environments_host h ON h.id = c.host_id
          JOIN environments_environment e ON e.id = c.environment_id WHERE e.benchmark""",
    "attempt {} holds core {} of environment {}": """
        SELECT r.holder, c.index, o.slug FROM environments_reservedcore x
          JOIN environments_reservation r ON r.id = x.reservation_id JOIN environments_core c ON c.id = x.core_id
          JOIN environments_environment e ON e.id = r.environment_id AND NOT e.benchmark
          JOIN environments_environment o ON o.id = c.environment_id AND o.id <> e.id
         WHERE x.released_at IS NULL""",
    "fleet policy of {}: its audits run on {}, which is retired": """
        SELECT e.slug, a.slug FROM fleet_fleetpolicy p JOIN environments_environment e ON e.id = p.environment_id
          JOIN environments_environment a ON a.id = p.audit_environment_id
         WHERE a.state = 'retired' AND e.state <> 'retired'""",
    "hold of job {} is open although the job is {}": """
        SELECT j.public_id, j.status FROM billing_hold h JOIN jobs_job j ON j.id = h.job_id
         WHERE h.status = 'open' AND j.finished_at IS NOT NULL""",
    "hold of job {} is {} although the job is {}": """
        SELECT j.public_id, h.status, j.status FROM billing_hold h JOIN jobs_job j ON j.id = h.job_id
         WHERE h.status <> 'open' AND j.finished_at IS NULL""",
    "job {}: {} of its hold is captured, {} is in the ledger": """
        SELECT j.public_id, h.captured, coalesce(e.amount, 0) FROM billing_hold h JOIN jobs_job j ON j.id = h.job_id
          LEFT JOIN billing_ledgertransaction t ON t.job_id = j.id
          LEFT JOIN billing_ledgerentry e ON e.transaction_id = t.id AND e.book = 'revenue'
         WHERE h.captured <> coalesce(e.amount, 0)""",
    "ledger transaction {} does not sum to zero: {}": """
        SELECT t.reference, sum(e.amount) FROM billing_ledgertransaction t
          LEFT JOIN billing_ledgerentry e ON e.transaction_id = t.id
         GROUP BY t.id HAVING coalesce(sum(e.amount), 1) <> 0""",
    "account {} has {} {}, its ledger entries sum to {}": """
        WITH sums AS (
            SELECT e.account_id, t.currency, sum(e.amount) AS amount FROM billing_ledgerentry e
              JOIN billing_ledgertransaction t ON t.id = e.transaction_id
             WHERE e.account_id IS NOT NULL GROUP BY e.account_id, t.currency)
        SELECT a.public_id, coalesce(b.amount, 0), currency, coalesce(s.amount, 0)
          FROM billing_balance b FULL JOIN sums s USING (account_id, currency) JOIN billing_account a ON a.id = account_id
         WHERE coalesce(b.amount, 0) <> coalesce(s.amount, 0)""",
    "account {} has {} {} held, its open holds sum to {}": """
        WITH sums AS (
            SELECT account_id, currency, sum(amount) AS amount FROM billing_hold WHERE status = 'open'
             GROUP BY account_id, currency)
        SELECT a.public_id, coalesce(b.held, 0), currency, coalesce(s.amount, 0)
          FROM billing_balance b FULL JOIN sums s USING (account_id, currency) JOIN billing_account a ON a.id = account_id
         WHERE coalesce(b.held, 0) <> coalesce(s.amount, 0)""",
}


def disagreements() -> Iterator[str]:
    """Every disagreement, one line each. An engine that does not answer is one."""
    yield from row_disagreements()
    yield from _unclean()
    for engine in Engine.objects.filter(kind=EngineKind.DOCKER).exclude(state=EngineState.DISABLED):
        try:
            link = connect(engine)
            yield from _containers(link)
            yield from _leftovers(link)
        except SiteError as error:
            yield f"engine {engine.name}: {error}"


def row_disagreements() -> Iterator[str]:
    """Those among rows alone: no engine is asked."""
    with connection.cursor() as cursor:
        for words, statement in ROW_CHECKS.items():
            cursor.execute(statement)
            yield from (words.format(*row) for row in cursor.fetchall())


def _unclean() -> Iterator[str]:
    """Finished a while ago, and still something of it on the engine."""
    limit = database_now() - SETTLING
    for attempt in Attempt.objects.filter(
        status__in=sorted(FINAL), cleaned_at__isnull=True, finished_at__lt=limit
    ):
        yield f"attempt {attempt.public_id} ended and is not cleaned: {attempt.leftover or 'no step was made'}"


def _containers(link: Connection) -> Iterator[str]:
    listed = {container.name: container for container in link.client.list_site(settings.SITE_ID)}
    names = {name.removesuffix(SUFFIX) for name in listed}
    rows = {
        row.container_name: row
        for row in Attempt.objects.filter(container_name__in=names, engine=link.engine)
    }
    for name, container in listed.items():
        row = rows.get(name.removesuffix(SUFFIX))
        if container.label("tombstone") or is_probe(name, settings.SITE_ID):
            continue
        if row is None:
            yield f"container {name} bears our site's label and belongs to no attempt"
        elif str(row.nonce) != container.label("nonce"):
            yield f"container {name} bears our name with another nonce"
        elif row.cleaned_at is not None:
            yield f"container {name} is {container.status} although its attempt was cleaned"
    running = Attempt.objects.filter(engine=link.engine, status=AttemptStatus.RUNNING).select_related("job")
    for row in running.defer("job__spec"):
        if row.container_name not in listed:
            yield f"attempt {row.public_id} is running without a container"
        elif was_promised(row.job) and not _runs(listed.get(gate_name(row.container_name))):
            yield f"attempt {row.public_id} is running without its gate: its job's network is gone"


def _runs(container: ContainerFacts | None) -> bool:
    return container is not None and container.status == "running"


def _leftovers(link: Connection) -> Iterator[str]:
    for trace in link.traces():
        if is_probe(trace.name, settings.SITE_ID):  # on its way, or swept soon
            continue
        if not Attempt.objects.filter(container_name=trace.name, cleaned_at__isnull=True).exists():
            yield f"{trace.kind} {trace.where} has no live attempt"
    if link.engine.facts.get("cgroup_parent"):
        for name in sorted(cgroup.existing(settings.SITE_ID)):
            key = as_uuid(cgroup.attempt_of(name))
            if key is None or not Attempt.objects.filter(public_id=key, cleaned_at__isnull=True).exists():
                yield f"cgroup {name} has no live attempt"
