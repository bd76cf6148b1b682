"""`bare.py MODULE ARGUMENTS`: runs a module of compute_site.embedded where nothing but Python is installed.

They need only the standard library, but the package above them needs Celery: it is passed over.
"""

import runpy
import sys
import types
from pathlib import Path

if __name__ == "__main__":
    package = types.ModuleType("compute_site")
    package.__path__ = [str(Path(__file__).resolve().parents[1] / "compute_site")]
    sys.modules["compute_site"] = package
    name = sys.argv.pop(1)
    runpy.run_module(f"compute_site.embedded.{name}", run_name="__main__", alter_sys=True)
