"""Beat's scheduler: in memory, since the schedule is static, and with a pulse for each knock that went out."""

from typing import Any

from celery.beat import Scheduler as InMemory

from compute_site.core.pulse import pulse


class Scheduler(InMemory):
    """See the module. A knock that could not be sent raises, and is no sign of life."""

    def apply_async(self, *args: Any, **kwargs: Any) -> Any:
        sent = super().apply_async(*args, **kwargs)
        pulse()
        return sent
