import compute_site.core.db
import django.contrib.postgres.constraints
import django.db.models.deletion
import environments.models.slots
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("environments", "0004_environment_labels"),
    ]

    operations = [
        migrations.AddField(
            model_name="engine",
            name="watched_until",
            field=models.DateTimeField(
                blank=True,
                editable=False,
                help_text="When another worker may take over the watch.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="engine",
            name="watcher",
            field=models.BigIntegerField(
                blank=True,
                editable=False,
                help_text="The worker that watches it now; its key, opaque here.",
                null=True,
            ),
        ),
        migrations.CreateModel(
            name="Slots",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "holder",
                    models.CharField(
                        help_text="The worker that has them, as people know it.", max_length=320
                    ),
                ),
                (
                    "cores",
                    environments.models.slots.NumberSetField(
                        help_text="Core indexes; all of the engine's if none were named."
                    ),
                ),
                (
                    "devices",
                    environments.models.slots.NumberSetField(
                        help_text="Device keys; all of the engine's if no core was named."
                    ),
                ),
                (
                    "taken_at",
                    models.DateTimeField(db_default=compute_site.core.db.ClockTimestamp(), editable=False),
                ),
                (
                    "released_at",
                    models.DateTimeField(editable=False, help_text="When their worker ended.", null=True),
                ),
                (
                    "engine",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="slots",
                        to="environments.engine",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "slots",
                "constraints": [
                    django.contrib.postgres.constraints.ExclusionConstraint(
                        condition=models.Q(("released_at__isnull", True)),
                        expressions=[
                            (
                                models.Func(
                                    models.F("engine"),
                                    models.F("engine"),
                                    models.Value("[]"),
                                    function="int8range",
                                    output_field=environments.models.slots.NumberSetField(),
                                ),
                                "&&",
                            ),
                            ("cores", "&&"),
                        ],
                        name="slots_one_worker_per_core",
                    ),
                    django.contrib.postgres.constraints.ExclusionConstraint(
                        condition=models.Q(("released_at__isnull", True)),
                        expressions=[
                            (
                                models.Func(
                                    models.F("engine"),
                                    models.F("engine"),
                                    models.Value("[]"),
                                    function="int8range",
                                    output_field=environments.models.slots.NumberSetField(),
                                ),
                                "&&",
                            ),
                            ("devices", "&&"),
                        ],
                        name="slots_one_worker_per_device",
                    ),
                ],
            },
        ),
    ]
