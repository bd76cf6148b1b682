"""Opens the workspace of an attempt in the way its engine was found to allow, and lists what is left of any."""

from workers.sandbox import volume_archive, volume_shared
from workers.sandbox.docker import EngineClient
from workers.sandbox.volume_archive import ArchiveWorkspace
from workers.sandbox.volume_shared import SharedWorkspace
from workers.sandbox.workspace import Disk, Mode, Trace, Workspace


def open_workspace(
    name: str,
    *,
    site: str,
    mode: Mode,
    disk: Disk,
    client: EngineClient,
    state_dir: str,
    launcher: str,
    image_id: str = "",
) -> Workspace:
    """Costs nothing and touches nothing. `image_id`: any image of the engine, needed by `archive` to prepare."""
    if mode == "archive":
        return ArchiveWorkspace(name, site=site, client=client, launcher=launcher, image_id=image_id)
    return SharedWorkspace(name, site=site, state_dir=state_dir, launcher=launcher, disk=disk)


def traces(*, site: str, mode: Mode, client: EngineClient, state_dir: str) -> list[Trace]:
    """Everything of the site's workspaces that exists on the engine, by name and kind."""
    if mode == "archive":
        return volume_archive.traces(client, site)
    return volume_shared.traces(state_dir, site)
