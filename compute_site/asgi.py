"""ASGI entry point: `uvicorn compute_site.asgi:application`."""

import os
import warnings

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "compute_site.settings")

# WhiteNoise serves its few small static files synchronously; our own downloads are asynchronous.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous iterators")

application = get_asgi_application()
