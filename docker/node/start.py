"""First program of every container of the node: `start.py ROLE`.

`secrets` makes what is missing below CONFIG_DIR and overwrites nothing; `init` migrates, looks what the engine can do and,
once, prepares the site; `web`, `worker`, `site` and `beat` become that process. DATABASE_URL and REDIS_URL win over the
site's own servers. For health checks: `answers` asks web, `alive` looks at the pulse of the others.
"""

import hashlib
import http.client
import os
import secrets
import shutil
import subprocess
import sys
import time
from pathlib import Path

CONFIG = Path(os.environ.get("CONFIG_DIR", "/config"))
APP = Path(__file__).resolve().parents[2]
MANAGE = (sys.executable, "manage.py")
PULSE_SECONDS = (
    45  # silent for longer is not well: the slowest pulse is that of the site's worker, every 10 s
)


def make_secrets() -> None:
    """The signing key is readable only by us; the servers' own users have to read their passwords.

    The volume is mounted by the site's containers alone, so that "by all" means those.
    """
    keep("secret_key", secrets.token_urlsafe(48), 0o400)
    keep("database_password", secrets.token_urlsafe(24), 0o444)
    keep("broker_password", secrets.token_urlsafe(24), 0o444)
    lines = [
        f"requirepass {read('broker_password')}",
        'save ""',
        "appendonly no",
        "maxmemory-policy noeviction",
    ]
    keep("broker.conf", "\n".join(lines) + "\n", 0o444)


def keep(name: str, text: str, mode: int) -> None:
    """Write the file whole or not at all, unless it exists."""
    target = CONFIG / name
    if target.exists():
        return
    part = CONFIG / f".{name}.part"
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.chmod(mode)
    part.rename(target)
    print(f"made {target}", flush=True)


def read(name: str) -> str:
    return (CONFIG / name).read_text().strip()


def environment() -> dict[str, str]:
    """What the settings read; a value that is set and not empty stays."""
    given = {name: value for name, value in os.environ.items() if value}
    database = f"{given.get('DATABASE_HOST', 'db')}:{given.get('DATABASE_PORT', '5432')}"
    broker = f"{given.get('BROKER_HOST', 'broker')}:{given.get('BROKER_PORT', '6379')}"
    return {
        "SECRET_KEY": read("secret_key"),
        "DATABASE_URL": f"postgres://compute_site:{read('database_password')}@{database}/compute_site",
        "REDIS_URL": f"redis://:{read('broker_password')}@{broker}/0",
    } | given


def init() -> None:
    """Migrate, give the engine the sandbox image, try out what the engine can do.

    At the first start it is also registered, and the one-time password and a token are printed.
    """
    manage("migrate", "--no-input", "--verbosity", "0")
    print("migrated", flush=True)
    manage("provide_sandbox_image")
    engine = os.environ.get("ENGINE", "local")
    if (CONFIG / "prepared").exists():
        manage("detect_host", "--engine", engine)
    else:
        # The engine keeps its volumes where it keeps containers: the disk of /data is the disk that jobs have.
        disk = os.statvfs(os.environ.get("DATA_DIR", "/data"))
        mib = str(disk.f_blocks * disk.f_frsize >> 20)
        manage("prepare_demo", "--engine", engine, "--host", engine, "--disk-mib", mib)
        keep("prepared", "", 0o444)


def manage(*arguments: str) -> None:
    """Raises CalledProcessError; what went wrong was printed by the command."""
    subprocess.run([*MANAGE, *arguments], check=True)


def beside_the_jobs() -> dict[str, str]:
    """As root, workspaces lie in STATE_DIR, which the engine sees at the same path; so it has to see the launcher.

    Each content under a name of its own: a container that is created and not started keeps the one it was made with.
    What the site stores stays changeable for the group, which is that of its other containers.
    """
    os.umask(0o002)
    source, state = Path(os.environ["LAUNCHER"]), Path(os.environ["STATE_DIR"])
    target = state / f"launcher-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}"
    if not target.exists():
        part = target.with_name(f".{target.name}.{os.uname().nodename}")
        shutil.copyfile(source, part)
        part.chmod(0o555)
        part.rename(target)
    return {"LAUNCHER": str(target)}


def program(role: str) -> list[str]:
    """The command line of a process that stays."""
    python, variables = sys.executable, os.environ
    if role == "web":
        address = [
            "--host",
            variables.get("WEB_HOST", "0.0.0.0"),
            "--port",
            variables.get("WEB_PORT", "8000"),
        ]
        return [python, "-m", "uvicorn", "compute_site.asgi:application", *address, "--no-access-log"]
    if role == "worker":
        return [*MANAGE, "engine_worker", variables.get("ENGINE", "local")]
    if role == "site":
        return [*MANAGE, "site_worker"]
    if role == "beat":
        celery = [python, "-m", "celery", "--quiet", "-A", "compute_site"]
        return [*celery, "beat", "--loglevel", "warning", "--pidfile", ""]
    raise SystemExit(f"{role!r}: use secrets, init, web, worker, site or beat.")


def alive() -> bool:
    """Whether the process's work succeeded lately: worker, site worker and beat touch the file then."""
    try:
        return time.time() - Path(os.environ["PULSE_FILE"]).stat().st_mtime < PULSE_SECONDS
    except FileNotFoundError:
        return False


def answers() -> bool:
    """A redirect to https counts: the answer is all that is asked for."""
    connection = http.client.HTTPConnection("127.0.0.1", int(os.environ.get("WEB_PORT", "8000")), timeout=4)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status < 400
    except OSError:
        return False


CHECKS = {"alive": alive, "answers": answers}


def main(role: str) -> None:
    os.chdir(APP)
    if role == "secrets":
        make_secrets()
        return
    if role in CHECKS:
        raise SystemExit(not CHECKS[role]())
    os.environ.update(environment())
    if os.geteuid() == 0 and role in ("init", "worker"):
        os.environ.update(beside_the_jobs())
    if role == "init":
        try:
            init()
        except subprocess.CalledProcessError as error:
            raise SystemExit(error.returncode) from None
        return
    command = program(role)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "web")
