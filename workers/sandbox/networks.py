"""The bridge of a site on an engine: made by us, known by its label, and shared by nobody but gates."""

import json

from workers.sandbox.connection import Refused
from workers.sandbox.docker import EngineClient
from workers.sandbox.refusals import of_start
from workers.sandbox.spec import LABEL_PREFIX

# Neighbours are closed by the rules of every gate; where the engine writes rules of its own, by those too.
OPTIONS = {"com.docker.network.bridge.enable_icc": "false"}


def network_name(site: str) -> str:
    """How it is called. An engine may come to have two of a name: it is used by id."""
    return f"cs-{site}"


def find_network(client: EngineClient, site: str) -> str | None:
    """The id of the site's network, None when the engine says that it has none. Of several the oldest counts."""
    filters = json.dumps({"label": [f"{LABEL_PREFIX}site={site}"], "driver": ["bridge"]})
    found = client.get("/networks", params={"filters": filters})
    ids = sorted((row["Created"], row["Id"]) for row in found if row["Name"] == network_name(site))
    return str(ids[0][1]) if ids else None


def provide_network(client: EngineClient, site: str) -> str:
    """The id of the site's network, made when there is none. Raises InfrastructureFailed, EngineUnreachable.

    It stays: an engine removes it by `docker network prune` at most while no gate is in it, and then it is made anew.
    """
    found = find_network(client, site)
    if found is not None:
        return found
    body = {
        "Name": network_name(site),
        "CheckDuplicate": True,
        "Driver": "bridge",
        "EnableIPv6": False,
        "Options": OPTIONS,
        "Labels": {f"{LABEL_PREFIX}site": site},
    }
    try:
        client.call("POST", "/networks/create", body=body)
    except Refused as error:
        if error.status != 409:  # somebody else was first
            raise of_start(error.sentence) from error
    found = find_network(client, site)
    if found is None:
        raise of_start(f"a network has the name {network_name(site)} and is not ours")
    return found


def remove_network(client: EngineClient, site: str) -> bool:
    """Remove it. True when there is none any more, False while something is in it."""
    found = find_network(client, site)
    return found is None or client.accepted("DELETE", f"/networks/{found}", (403, 409))
