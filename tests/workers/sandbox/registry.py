"""A registry of one image on the loopback address, with as many ways to refuse as registries have."""

import gzip
import hashlib
import io
import json
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
REFUSALS = {
    "missing": (404, "MANIFEST_UNKNOWN", "manifest unknown"),
    "private": (401, "UNAUTHORIZED", "authentication required"),
    "broken": (500, "UNKNOWN", "internal failure"),
}


def digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def image(salt: str = "") -> tuple[bytes, dict[str, bytes]]:
    """A manifest and its blobs: one layer with one file. `salt` makes it an image of its own."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        entry = tarfile.TarInfo("hello")
        entry.size = 5
        archive.addfile(entry, io.BytesIO(b"hello"))
    layer = gzip.compress(tar.getvalue(), mtime=0)
    rootfs = {"type": "layers", "diff_ids": [digest(tar.getvalue())]}
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Cmd": ["/hello"], "Env": ["A=1"]} | ({"Labels": {"salt": salt}} if salt else {}),
            "rootfs": rootfs,
        }
    ).encode()

    def part(kind: str, content: bytes) -> dict[str, Any]:
        return {"mediaType": kind, "size": len(content), "digest": digest(content)}

    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": part(CONFIG, config)}
    manifest["layers"] = [part(LAYER, layer)]
    return json.dumps(manifest).encode(), {digest(config): config, digest(layer): layer}


class Registry(BaseHTTPRequestHandler):
    """`/v2/<name>/...`: the name says how it is answered (good, slow, or one of REFUSALS)."""

    manifest, blobs = image()

    def do_GET(self) -> None:
        parts = self.path.split("/")
        if self.path == "/v2/":
            self.answer(200, b"{}", "application/json")
        elif parts[2] in REFUSALS:
            status, code, message = REFUSALS[parts[2]]
            body = json.dumps({"errors": [{"code": code, "message": message}]}).encode()
            self.answer(status, body, "application/json")
        elif parts[2] == "slow":
            time.sleep(8)
        elif parts[3] == "manifests":
            self.answer(200, self.manifest, MANIFEST)
        else:
            self.answer(200, self.blobs[parts[4]], "application/octet-stream")

    do_HEAD = do_GET

    def answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Docker-Content-Digest", digest(body))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@contextmanager
def running_registry(salt: str = "") -> Iterator[str]:
    """`127.0.0.1:port` of a registry that answers while the block runs; with the image of this `salt`."""
    manifest, blobs = image(salt)
    served = type("Salted", (Registry,), {"manifest": manifest, "blobs": blobs})
    server = ThreadingHTTPServer(("127.0.0.1", 0), served)
    server.daemon_threads = True
    server.block_on_close = False
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
