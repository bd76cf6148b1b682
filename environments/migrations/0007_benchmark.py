from django.db import migrations, models


def take_for_detected(apps, schema_editor):
    """What stood there before was written by detection, on hosts that were detected at all."""
    hosts = apps.get_model("environments", "Host").objects.filter(detected_at__isnull=False)
    fields = ("cpu_count", "memory_mib", "disk_mib")
    hosts.update(**{f"detected_{field}": models.F(field) for field in fields})


class Migration(migrations.Migration):
    dependencies = [
        ("environments", "0005_slots"),
    ]

    operations = [
        migrations.AddField(
            model_name="engine",
            name="enable_benchmark",
            field=models.BooleanField(
                default=False,
                help_text="Opens the whole host to those who measure it (BENCHMARK_… settings), one job at a time and alone. A measuring tool, not an offer.",
            ),
        ),
        migrations.AddField(
            model_name="environment",
            name="benchmark",
            field=models.BooleanField(
                default=False,
                editable=False,
                help_text="Measures its host, see environments/benchmark.py; kept by the engine's switch, not by hand.",
            ),
        ),
        migrations.AddField(
            model_name="host",
            name="detected_cpu_count",
            field=models.PositiveIntegerField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="host",
            name="detected_memory_mib",
            field=models.PositiveBigIntegerField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="host",
            name="detected_disk_mib",
            field=models.PositiveBigIntegerField(editable=False, null=True),
        ),
        migrations.RunPython(take_for_detected, migrations.RunPython.noop),
        migrations.AddConstraint(
            model_name="environment",
            constraint=models.UniqueConstraint(
                condition=models.Q(("benchmark", True)),
                fields=("engine",),
                name="environment_one_benchmark_per_engine",
                violation_error_message="This engine already has a benchmark environment.",
            ),
        ),
    ]
