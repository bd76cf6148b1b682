import django.db.models.deletion
from django.db import migrations, models


def give_all(apps, schema_editor):
    """A worker from before there were slots had all of its engine."""
    Worker, Slots = apps.get_model("workers", "Worker"), apps.get_model("environments", "Slots")
    for worker in Worker.objects.filter(slots=None).order_by("pk"):
        holder = f"{worker.public_id.hex[-8:]} ({worker.hostname}:{worker.pid})"
        worker.slots = Slots.objects.create(
            engine_id=worker.engine_id,
            holder=holder,
            cores=None,
            devices=None,
            taken_at=worker.started_at,
            released_at=worker.ended_at,
        )
        worker.save(update_fields=["slots"])


def slots(**options):
    return models.OneToOneField(
        on_delete=django.db.models.deletion.PROTECT,
        related_name="worker",
        to="environments.slots",
        **options,
    )


class Migration(migrations.Migration):
    dependencies = [
        ("environments", "0005_slots"),
        ("workers", "0001_initial"),
    ]

    operations = [
        migrations.RemoveConstraint(model_name="worker", name="worker_one_live_per_engine"),
        migrations.AddField(model_name="worker", name="slots", field=slots(null=True)),
        migrations.RunPython(give_all, migrations.RunPython.noop),
        # The references just written are checked now: PostgreSQL alters no table whose checks are still to come.
        migrations.RunSQL("SET CONSTRAINTS ALL IMMEDIATE", migrations.RunSQL.noop),
        migrations.AlterField(model_name="worker", name="slots", field=slots()),
    ]
