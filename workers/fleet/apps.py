from django.apps import AppConfig


class FleetConfig(AppConfig):
    name = "workers.fleet"
    label = "fleet"
    verbose_name = "Fleet"
