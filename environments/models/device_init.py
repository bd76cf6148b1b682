"""What a container needs so that a device works inside, where the driver's own request (NVIDIA) does not see to it."""

import re

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q

from compute_site.core.db import in_list
from compute_site.core.numbers import shown
from environments.models.host import NVIDIA, Device


class InitKind(models.TextChoices):
    PATH = "path", "device file"
    GROUP = "group", "group of the host"
    VARIABLE = "variable", "environment variable"


PERMISSIONS = ("rw", "r", "w")  # never m: a container makes no device files
PATH = r"^/dev(/[A-Za-z0-9_][A-Za-z0-9_.:+-]*){1,4}$"
GROUP = r"^[1-9][0-9]{0,4}$"
# What runtimes of accelerators read; nothing that steers a loader, a language or Docker.
VARIABLE = r"^(AMD|GPU|HIP|HSA|MIOPEN|ROCM|ROCR|INTEL|LIBVA|NEO|ONEAPI|SYCL|UR|ZE|ZES)_[A-Z0-9_]{1,64}$"
TEXT = r"^[ -~]{1,255}$"
LARGEST_GROUP = 65_535
# Every container has these, its own.
OWN = "null|zero|full|random|urandom|tty|console|ptmx|pts|shm|mqueue|fd|stdin|stdout|stderr|core"
# Memory, kernel, disks, network, terminals and input of the machine: whoever has them has the host. And what another
# driver hands out by itself.
HOSTS = (
    r"mem|kmem|port|kmsg|mcelog|hpet|nvram|snapshot|watchdog.*|cpu.*|cuse|fuse|net|autofs|btrfs-control|userfaultfd"
    r"|loop.*|sd.*|hd.*|vd.*|xvd.*|nvme.*|mmcblk.*|md.*|dm-.*|zd.*|zram.*|ram.*|nbd.*|rbd.*|sr.*|sg.*|st\d.*|bsg|mapper"
    r"|disk|block|char|raw.*|pmem.*|dax.*|mtd.*|ubi.*|tty.+|vcs.*|hvc.*|pty.*|input|uinput|uhid|hidraw.*|bus|usb.*"
    r"|hugepages|tpm.*|ipmi.*|mei.*|vfio|vhost.*|kvm|sev.*|sgx.*|rfkill|gpiochip.*|i2c.*|spi.*|nvidia.*"
    r"|root|fd\d.*|ng\d.*|nst\d.*|dasd.*|drbd.*|bcache.*|ublk.*|rssd.*|zfs|cdrom.*|cdrw.*|dvd.*|megaraid.*|mpt\d*ctl"
    r"|uio.*|iommu|udmabuf|oldmem|ndctl.*|nmem.*|vga_arbiter|fb\d.*|rtc.*|hwrng|lp\d.*|parport.*|ppp|tun|tap.*|macvtap.*"
    r"|vsock|vmci|vmmon|vbox.*|vport.*|xen|vmbus|psaux|mouse.*|lirc.*|userio|ecryptfs|log|initctl|crypto"
)
REFUSED = re.compile(rf"/dev/({OWN}|{HOSTS})(/|\Z)")
# An engine would hand out everything in a folder; in others than these are links, such as /dev/GROUP/VOLUME to a disk.
KNOWN = "dri|dri/by-path|accel|tenstorrent|snd|infiniband|dma_heap|v4l"
FOLDERS = re.compile(rf"/dev/({KNOWN})\Z")
PLACE = re.compile(rf"/dev/(({KNOWN})/)?[^/]+\Z")
SHARED = ("/dev/kfd", "/dev/dxg")  # the one file of all devices of their driver
SHAPE = Q(kind="path", name__regex=PATH, value__in=PERMISSIONS)
SHAPE |= Q(kind="group", name__regex=GROUP, value="")
SHAPE |= Q(kind="variable", name__regex=VARIABLE, value__regex=TEXT)


def init_error(kind: str, name: str, value: str) -> tuple[str, str] | None:
    """What is wrong with one entry, as (field, message): the same words at every door; None when nothing is."""
    if kind == InitKind.PATH:
        return _path_error(name, value)
    if kind == InitKind.GROUP:
        return _group_error(name, value)
    if not re.match(VARIABLE, name) or name.endswith("\n"):
        return (
            "name",
            f"Found {shown(name)}; only variables of accelerators are passed, such as HSA_… or ZE_….",
        )
    if not re.match(TEXT, value) or value.endswith("\n"):
        return "value", f"Found {shown(value)}; write 1 to 255 characters of ASCII on one line."
    return None


def _path_error(name: str, value: str) -> tuple[str, str] | None:
    if not re.match(PATH, name) or name.endswith("\n"):
        return (
            "name",
            f"Found {shown(name)}; write one device file below /dev, without . and .., as /dev/kfd.",
        )
    if REFUSED.match(name):
        return (
            "name",
            f"Found {shown(name)}; that is the machine's or another driver's: only files of this device belong here.",
        )
    if FOLDERS.match(name):
        return (
            "name",
            f"Found {shown(name)}, a folder; name each device file in it that belongs to this device.",
        )
    if not PLACE.match(name):
        return (
            "name",
            f"Found {shown(name)}; in a folder, device files are taken from {', '.join(KNOWN.split('|'))} below /dev alone.",
        )
    if value not in PERMISSIONS:
        return "value", f"Found {shown(value)}; the permissions of a device file are rw, r or w."
    return None


def _group_error(name: str, value: str) -> tuple[str, str] | None:
    first, count = settings.UID_RANGE
    if not re.match(GROUP, name) or name.endswith("\n") or int(name) > LARGEST_GROUP:
        text = "write the number that the group has on the host, 1 to 65535 (getent group video render); names are"
        return "name", f"Found {shown(name)}; {text} the image's to say, and 0 is root's."
    if first <= int(name) < first + count:
        return "name", f"Found {name}; the numbers from {first} to {first + count - 1} are those of jobs."
    return ("value", f"Found {shown(value)}; a group has no value, leave it empty.") if value else None


class DeviceInit(models.Model):
    """One thing that a container with this device gets: a device file, a group for the job's user, or a variable.

    A closed form: mounts, capabilities, namespaces and security options are not to be had. It is for operators alone:
    no offer, receipt or file of a job tells it. It does not change while a job holds the device.
    """

    device = models.ForeignKey(
        Device, on_delete=models.CASCADE, related_name="init", help_text="The device that needs it."
    )
    kind = models.CharField(max_length=8, choices=InitKind, default=InitKind.PATH, help_text="What it is.")
    name = models.CharField(
        max_length=128,
        help_text="/dev/dri/renderD128, the number of a group on the host, or the name of a variable.",
    )
    value = models.CharField(
        max_length=255,
        blank=True,
        help_text="Of a device file its permissions (rw, r, w; empty = rw), of a variable its value.",
    )

    class Meta:
        ordering = ["device", "pk"]
        verbose_name = "init entry"
        verbose_name_plural = "init: what a container gets of it"
        constraints = [
            models.UniqueConstraint(
                fields=["device", "kind", "name"],
                name="device_init_once",
                violation_error_message="This device already has this entry.",
            ),
            models.CheckConstraint(name="device_init_kind_known", condition=in_list("kind", InitKind.values)),
            models.CheckConstraint(
                name="device_init_shape",
                condition=SHAPE,
                violation_error_message="A device file below /dev with rw, r or w; a group by number; or a variable.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.value}".strip()

    def clean(self) -> None:
        """A safe entry, of a device whose driver does not see to it, that suits the other devices of the host.

        Raises ValidationError with fields.
        """
        if self.kind == InitKind.PATH and not self.value:
            self.value = "rw"
        if found := init_error(self.kind, self.name, self.value):
            raise ValidationError(dict([found]))
        if self.device.platform == NVIDIA:
            text = "A device of platform nvidia comes with its driver's own request; leave its init empty."
            raise ValidationError({"name": text})
        if self.kind != InitKind.GROUP:
            self._check_others()

    def _check_others(self) -> None:
        """A job may hold several devices of a host, and no two jobs get the same device file."""
        others = DeviceInit.objects.filter(device__host=self.device.host_id, kind=self.kind, name=self.name)
        others = others.exclude(device=self.device_id).select_related("device")
        if self.kind == InitKind.PATH and self.name not in SHARED and (other := others.first()):
            text = f"{self.name} is of {other.device.uuid} on this host; a device file belongs to one device."
            raise ValidationError({"name": text})
        if self.kind == InitKind.VARIABLE and (other := others.exclude(value=self.value).first()):
            text = f"It is {shown(other.value)} for {other.device.uuid}; one job may hold both, so make them the same."
            raise ValidationError({"value": text})
