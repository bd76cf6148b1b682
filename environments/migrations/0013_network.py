from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("environments", "0012_device_init_and_wallets")]

    operations = [
        migrations.AddField(
            model_name="engine",
            name="network_facts",
            field=models.JSONField(
                blank=True,
                default=dict,
                editable=False,
                help_text="Why it grants none, or the host's addresses, which no job reaches.",
            ),
        ),
        migrations.AddField(
            model_name="engine",
            name="network_granted",
            field=models.BooleanField(
                default=False,
                editable=False,
                help_text="Whether jobs can get a network here, as a worker found by trying.",
            ),
        ),
        migrations.AddField(
            model_name="engine",
            name="network_tried_at",
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
        migrations.AlterField(
            model_name="environment",
            name="enable_network",
            field=models.BooleanField(
                default=False,
                help_text="Whether its jobs reach the internet, and nothing private. Jobs keep what they were admitted with.",
            ),
        ),
    ]
