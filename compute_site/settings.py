"""Settings, all from the environment (see .env.example). Nothing here needs a running service to import."""

import ipaddress
import re
import shlex
from pathlib import Path
from typing import Any

import environ
from django.core.exceptions import ImproperlyConfigured
from django.templatetags.static import static

from compute_site.schedule import BEAT_SCHEDULE, SITE_QUEUE

BASE_DIR = Path(__file__).resolve().parent.parent

env = environ.Env()
if (BASE_DIR / ".env").is_file():
    env.read_env(BASE_DIR / ".env")

# The site itself
SITE_ID = env.str("SITE_ID", default="local")  # in labels and in names of containers, folders and cgroups
if not re.fullmatch("[a-z0-9]{1,12}", SITE_ID):
    raise ImproperlyConfigured(f"SITE_ID is {SITE_ID!r}; use 1 to 12 lower-case letters and digits.")
STATE_DIR = Path(env.str("STATE_DIR", default=str(BASE_DIR / "var" / "state")))  # workspaces of running jobs
DATA_DIR = Path(env.str("DATA_DIR", default=str(BASE_DIR / "var" / "data")))  # stored outputs
LAUNCHER = env.str("LAUNCHER", default=str(BASE_DIR / "var" / "launcher"))  # static PID 1 of every container
SANDBOX_IMAGE = env.str("SANDBOX_IMAGE", default="compute-site/base:latest")
SANDBOX_BASE = env.str(
    "SANDBOX_BASE", default="python:3.11-slim-bookworm"
)  # what it is built from when missing
CACHE_DIR = Path(cache) if (cache := env.str("CACHE_DIR", default="")) else None  # may be emptied at any time
PULSE_FILE = env.str("PULSE_FILE", default="")  # touched while this process's work succeeds
UID_RANGE = (env.int("UID_FIRST", default=2_000_000_000), env.int("UID_COUNT", default=65_536))
if not (UID_RANGE[0] >= 1000 and UID_RANGE[1] >= 1 and sum(UID_RANGE) < 2**32):
    raise ImproperlyConfigured(
        f"UID_FIRST and UID_COUNT are {UID_RANGE}; jobs need numbers from 1000 to below 2^32."
    )
DOCKER_HOST = env.str("DOCKER_HOST", default="unix:///var/run/docker.sock")
# Environments as Ocean Node is configured with them: JSON, or @ and the path of a file.
DOCKER_COMPUTE_ENVIRONMENTS = env.str("DOCKER_COMPUTE_ENVIRONMENTS", default="")
LOG_CAP_BYTES = env.int("LOG_CAP_BYTES", default=16 * 1024 * 1024)  # per stream
WORKER_TTL_SECONDS = env.int("WORKER_TTL_SECONDS", default=15)  # silent for longer = lost
STEP_LEASE_SECONDS = env.int("STEP_LEASE_SECONDS", default=20)  # renewed by the worker's heartbeat
IMAGE_PULL_SECONDS = env.int("IMAGE_PULL_SECONDS", default=900)
# The operator's scanner, split into words as a shell would: empty = none. {image} becomes the id of the image.
try:
    IMAGE_SCAN_COMMAND = shlex.split(env.str("IMAGE_SCAN_COMMAND", default=""))
except ValueError as error:
    raise ImproperlyConfigured(f"IMAGE_SCAN_COMMAND cannot be split into words: {error}.") from error
if IMAGE_SCAN_COMMAND and not any("{image}" in word for word in IMAGE_SCAN_COMMAND):
    raise ImproperlyConfigured("IMAGE_SCAN_COMMAND names no image; write {image} where its id is to stand.")
IMAGE_SCAN_SECONDS = env.int("IMAGE_SCAN_SECONDS", default=300)
IMAGE_SCAN_KEPT_SECONDS = env.int("IMAGE_SCAN_KEPT_SECONDS", default=86_400)  # then an image is scanned again
if not (IMAGE_SCAN_SECONDS >= 1 and 0 <= IMAGE_SCAN_KEPT_SECONDS < 2**32):
    raise ImproperlyConfigured(
        "IMAGE_SCAN_SECONDS is at least 1, IMAGE_SCAN_KEPT_SECONDS from 0 to 4294967295."
    )
ALLOWED_REGISTRIES = env.list("ALLOWED_REGISTRIES", default=["docker.io"])  # pulls from others are refused
# Of jobs with a network: whom they ask for names, and what they do not reach besides what nobody does.
NETWORK_RESOLVERS = env.list("NETWORK_RESOLVERS", default=["1.1.1.1", "9.9.9.9"])
NETWORK_CLOSED = env.list("NETWORK_CLOSED", default=[])  # IPv4 networks
try:
    if not 1 <= len([ipaddress.IPv4Address(text) for text in NETWORK_RESOLVERS]) <= 3:
        raise ValueError("1 to 3 addresses")
except ValueError as error:
    raise ImproperlyConfigured(f"NETWORK_RESOLVERS is {NETWORK_RESOLVERS}: {error}") from error
try:
    if len([ipaddress.IPv4Network(text) for text in NETWORK_CLOSED]) > 256:
        raise ValueError("at most 256 networks")
except ValueError as error:
    raise ImproperlyConfigured(f"NETWORK_CLOSED is {NETWORK_CLOSED}: {error}") from error
STOP_GRACE_SECONDS = env.int("STOP_GRACE_SECONDS", default=10)
RETRY_BACKOFF_SECONDS = env.int("RETRY_BACKOFF_SECONDS", default=5)
MAX_BYPASS_SECONDS = env.int("MAX_BYPASS_SECONDS", default=300)
MAX_QUEUED_JOBS_PER_ACCOUNT = env.int("MAX_QUEUED_JOBS_PER_ACCOUNT", default=10_000)
MAX_RUNNING_JOBS_PER_ACCOUNT = env.int("MAX_RUNNING_JOBS_PER_ACCOUNT", default=1_000)
# Benchmark environments, on engines with the switch: there is none before these are set.
BENCHMARK_SECONDS = env.int("BENCHMARK_SECONDS", default=0)  # longest run
BENCHMARK_CURRENCY = env.str("BENCHMARK_CURRENCY", default="")  # credit, or chain id and token
BENCHMARK_CORE_PRICE = env.str("BENCHMARK_CORE_PRICE", default="")  # per minute
BENCHMARK_USERS = env.list(
    "BENCHMARK_USERS", default=[]
)  # users and wallet addresses that it is open to, one
BENCHMARK_ADDRESSES = env.list("BENCHMARK_ADDRESSES", default=[])  # of them at least
FLEET_ENABLED = env.bool(
    "FLEET_ENABLED", default=False
)  # off: its routes are not there, its rows are not written
FLEET_TTL_SECONDS = env.int("FLEET_TTL_SECONDS", default=120)  # a remote worker silent for longer is stale
FLEET_INTERNAL_TOKEN = env.str(
    "FLEET_INTERNAL_TOKEN", default=""
)  # opens the list of active ones; empty: nobody

# Keys that seal providers' keys, "id:base64 of 32 bytes"; the first one seals, all of them open.
PROVIDER_KEY_RING = env.list("PROVIDER_KEY_RING", default=[])  # none = one made from SECRET_KEY
PROVIDER_ALARM_SECONDS = env.int("PROVIDER_ALARM_SECONDS", default=600)  # a pod that will not die for longer
PROVIDER_GRACE_SECONDS = env.int("PROVIDER_GRACE_SECONDS", default=900)  # a lost create may still show up

# Django
SECRET_KEY = env.str("SECRET_KEY", default="insecure-only-for-checks-and-development")
DEBUG = env.bool("DEBUG", default=False)
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])
INSTALLED_APPS = [
    "unfold",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "django_filters",
    "knox",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "drf_standardized_errors",
    "environments",
    "jobs.billing",
    "jobs",
    "providers",
    "workers",
    "workers.fleet",
]
MIDDLEWARE = [
    "compute_site.core.middleware.DatabaseDownMiddleware",
    "compute_site.core.middleware.RefuseNulMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "compute_site.urls"
ASGI_APPLICATION = "compute_site.asgi.application"
WSGI_APPLICATION = "compute_site.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "compute_site" / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("MinimumLengthValidator", "CommonPasswordValidator", "NumericPasswordValidator")
]
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "compute_site" / "static"]
STATIC_ROOT = env.str("STATIC_ROOT", default=None)  # only for a web server that serves them itself
WHITENOISE_USE_FINDERS = True  # no collectstatic step
WHITENOISE_AUTOREFRESH = DEBUG
MEDIA_ROOT = DATA_DIR
STORAGES: dict[str, Any] = {
    "default": {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {"location": str(DATA_DIR)},
    },
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
DATA_UPLOAD_MAX_MEMORY_SIZE = 8 * 1024 * 1024

# PostgreSQL: connections come from psycopg's pool, which does not go with persistent connections.
DATABASES: dict[str, Any] = {
    "default": env.db_url("DATABASE_URL", default="postgres://compute_site@localhost/compute_site")
}
DATABASES["default"].update(ENGINE="compute_site.core.postgresql", CONN_MAX_AGE=0, CONN_HEALTH_CHECKS=False)
DATABASES["default"].setdefault("OPTIONS", {})
DATABASES["default"]["OPTIONS"].update(
    pool={
        "min_size": 0,
        "max_size": env.int("DATABASE_POOL", default=24),
        "timeout": env.float("DATABASE_POOL_TIMEOUT", default=10),
    },
    connect_timeout=5,
    # No statement here runs so long that compiling it would pay; PostgreSQL does it by a guess of the cost.
    options=f"{DATABASES['default']['OPTIONS'].get('options', '')} -c jit=off".strip(),
)

# Celery on Redis/Valkey: a knock may be lost or doubled, nothing depends on it.
REDIS_URL = env.str("REDIS_URL", default="redis://localhost:6379/0")
CELERY_BROKER_URL = REDIS_URL
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_STORE_EAGER_RESULT = False
CELERY_TASK_ACKS_LATE = False
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False
CELERY_TASK_DEFAULT_QUEUE = SITE_QUEUE
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # a broker may be away for a day: running jobs need their worker
CELERY_BROKER_TRANSPORT_OPTIONS = {
    # Knocks are not kept in the broker until they are acknowledged: that was most of what a message cost.
    "ack_emulation": False,
    "socket_timeout": 5.0,
    "socket_connect_timeout": 3.0,
    "retry_on_timeout": True,
    "health_check_interval": 10,
}
CELERY_TIMEZONE = "UTC"
CELERY_BEAT_SCHEDULE = BEAT_SCHEDULE
CELERY_BEAT_SCHEDULER = "compute_site.beat:Scheduler"

# REST
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "compute_site.core.authentication.BearerAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": [
        "rest_framework.permissions.IsAuthenticated",
        "compute_site.core.authentication.HasScope",
    ],
    "DEFAULT_PARSER_CLASSES": ["compute_site.core.api.StrictJSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_FILTER_BACKENDS": ["django_filters.rest_framework.DjangoFilterBackend"],
    "EXCEPTION_HANDLER": "compute_site.core.api.problem_response",
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
KNOX_TOKEN_MODEL = "jobs.Token"
REST_KNOX = {"AUTH_HEADER_PREFIX": "Bearer", "TOKEN_PREFIX": "cs_", "TOKEN_TTL": None, "AUTO_REFRESH": False}
SPECTACULAR_SETTINGS = {
    "TITLE": "Compute Site",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "ENUM_NAME_OVERRIDES": {
        "JobStatus": "jobs.models.JobStatus",
        "AttemptStatus": "jobs.models.AttemptStatus",
        "EnvironmentState": "environments.models.EnvironmentState",
        "PodStatus": "providers.models.PodStatus",
        "ProviderKind": "providers.models.ProviderKind",
        "Scope": "compute_site.core.scopes.Scope",
    },
}
UNFOLD = {
    "SITE_TITLE": "Compute Site",
    "SITE_HEADER": "Compute Site",
    "SITE_URL": None,  # no link to a site beside the admin: there is none
    "SHOW_HISTORY": True,
    "DASHBOARD_CALLBACK": "compute_site.overview_page.dashboard",
    "SIDEBAR": {"navigation": "compute_site.navigation.navigation"},
    "STYLES": [lambda request: static("compute_site/admin.css")],
}

# Behind TLS set SECURE=true (cookies, redirect, HSTS); plain HTTP on loopback is for development.
SECURE = env.bool("SECURE", default=False)
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = SECURE
SECURE_HSTS_SECONDS = 31_536_000 if SECURE else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = SECURE
if env.bool("TRUST_PROXY", default=False):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(levelname)-7s %(name)s: %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": env.str("LOG_LEVEL", default="INFO")},
    "loggers": {
        "django.request": {"level": "ERROR"},
        "httpx": {"level": "WARNING"},
        "celery.worker.strategy": {"level": "WARNING"},
        "celery.app.trace": {"level": "WARNING"},
    },
}
