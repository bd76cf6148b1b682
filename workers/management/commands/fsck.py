"""`manage.py fsck`: prints every disagreement between rows and engines; exits 1 when there is one."""

from typing import Any

from django.core.management.base import BaseCommand

from workers.fsck import disagreements


class Command(BaseCommand):
    help = "Compare rows, the ledger and what is on the engines: containers, workspaces, cgroups. Changes nothing."

    def handle(self, *args: Any, **options: Any) -> None:
        count = 0
        for line in disagreements():
            count += 1
            self.stdout.write(line)
        if count:
            self.stderr.write(f"{count} disagreements")
            raise SystemExit(1)
        self.stdout.write(self.style.SUCCESS("Rows and engines agree."))
