"""WSGI entry point, for servers that prefer it."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "compute_site.settings")

application = get_wsgi_application()
