"""Configurations of Ocean Node, in all forms that occur: read, planned, applied; and written back."""

from environments.exporting import as_json, docker_engines, export_engine, export_environment
from environments.importing.applying import Choice, import_configuration
from environments.importing.paths import refusal_lines
from environments.importing.plan import Change, Note, Plan, Value, difference
from environments.importing.tokens import check_tokens, read_tokens
from environments.importing.withheld import told_to

__all__ = [
    "Change",
    "Choice",
    "Note",
    "Plan",
    "Value",
    "as_json",
    "check_tokens",
    "difference",
    "docker_engines",
    "export_engine",
    "export_environment",
    "import_configuration",
    "read_tokens",
    "refusal_lines",
    "told_to",
]
