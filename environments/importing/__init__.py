"""Configurations of Ocean Node, in all forms that occur: read, planned, applied; and written back."""

from environments.importing.applying import Choice, import_configuration
from environments.importing.exporting import as_json, export_engine, export_environment
from environments.importing.plan import Change, Plan

__all__ = [
    "Change",
    "Choice",
    "Plan",
    "as_json",
    "export_engine",
    "export_environment",
    "import_configuration",
]
