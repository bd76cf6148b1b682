"""Tokens with names and scopes, in place of knox's own table, which stays empty from now on and refers to nothing: Django
does not know it any more, and could not empty the table of users together with it.

A token keeps what its user could do with it: the routes of the staff were open to the staff's alone, all others to every
token. Who was permitted to see or revoke tokens in the admin still is.
"""

from typing import Any

import django.contrib.postgres.fields
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import compute_site.core.scopes

SCOPED = """
INSERT INTO jobs_token (digest, token_key, user_id, created, expiry, name, scopes)
SELECT t.digest, t.token_key, t.user_id, t.created, t.expiry, '',
       CASE WHEN u.is_staff THEN '{admin,fleet,read,submit}' ELSE '{fleet,read,submit}' END::varchar(16)[]
  FROM knox_authtoken t JOIN auth_user u ON u.id = t.user_id
"""
UNSCOPED = """
INSERT INTO knox_authtoken (digest, token_key, user_id, created, expiry)
SELECT digest, token_key, user_id, created, expiry FROM jobs_token
"""

FORGET = """
DELETE FROM knox_authtoken;
ALTER TABLE knox_authtoken DROP CONSTRAINT IF EXISTS knox_authtoken_user_id_e5a5d899_fk_auth_user_id
"""
REFER = """
ALTER TABLE knox_authtoken ADD CONSTRAINT knox_authtoken_user_id_e5a5d899_fk_auth_user_id
  FOREIGN KEY (user_id) REFERENCES auth_user (id) DEFERRABLE INITIALLY DEFERRED
"""


def keep_permissions(apps: Any, schema_editor: Any) -> None:
    """What somebody may do with knox's tokens they may do with these."""
    permissions = apps.get_model("auth", "Permission").objects
    kind, _ = apps.get_model("contenttypes", "ContentType").objects.get_or_create(
        app_label="jobs", model="token"
    )
    for action in ("add", "change", "delete", "view"):
        new, _ = permissions.get_or_create(
            content_type=kind, codename=f"{action}_token", defaults={"name": f"Can {action} token"}
        )
        for old in permissions.filter(content_type__app_label="knox", codename=f"{action}_authtoken"):
            new.user_set.add(*old.user_set.all())
            new.group_set.add(*old.group_set.all())


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0004_chosen_and_passed_over"),
        ("knox", "0009_extend_authtoken_field"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Token",
            fields=[
                ("digest", models.CharField(max_length=128, primary_key=True, serialize=False)),
                ("token_key", models.CharField(db_index=True, max_length=25)),
                ("created", models.DateTimeField(auto_now_add=True)),
                ("expiry", models.DateTimeField(blank=True, null=True)),
                (
                    "name",
                    models.CharField(
                        blank=True, help_text="What it is for, in its owner's words.", max_length=100
                    ),
                ),
                (
                    "scopes",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=16),
                        blank=True,
                        default=compute_site.core.scopes.usual_scopes,
                        help_text="What it may be used for: read, submit, admin, fleet; one of them at least.",
                        size=None,
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="auth_token_set",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["-created", "pk"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("scopes__contained_by", ["admin", "fleet", "read", "submit"]),
                            ("scopes__len__gte", 1),
                        ),
                        name="token_scopes_known",
                        violation_error_message="A token has one scope at least, of read, submit, admin, fleet.",
                    )
                ],
            },
        ),
        migrations.RunSQL(SCOPED, UNSCOPED),
        migrations.RunSQL(FORGET, REFER),
        migrations.RunPython(keep_permissions, migrations.RunPython.noop),
    ]
