"""Hosts, devices and engines."""

from typing import Any
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.admin import TabularInline
from unfold.decorators import action, display

from compute_site.core.admin import EditedAdmin, StrictForm, StrictFormSet, perform
from compute_site.core.showing import mib, pairs, when
from environments import editing
from environments.admin.history import author
from environments.admin.import_page import ConfigurationAdmin, export_file
from environments.admin.pictures import cores_picture, devices_picture, legend
from environments.benchmark import keep_host_in_step, keep_in_step
from environments.detection import record_cores
from environments.device_init import DeviceEdit
from environments.models import Device, DeviceHealth, DeviceInit, Door, Engine, EngineKind, EngineState, Host
from environments.reservations import lock_host
from environments.rules import check_host, host_environments, overcommitted, totals_above

IMPORT_PAGE = "admin:environments_environment_import_configuration"

STATES = {EngineState.ACTIVE: "success", EngineState.DRAINING: "info", EngineState.DISABLED: "default"}


@admin.register(Host)
class HostAdmin(EditedAdmin):
    """Machines. Sizes are detected, or entered by hand where detection cannot see them."""

    list_display = (
        *("name", "architecture", "cpu_count", "memory", "disk"),
        *(when("detected_at"), when("declared_gone_at", "declared gone")),
    )
    search_fields = ("name",)
    readonly_fields = ("cores", "devices", when("detected_at"), when("declared_gone_at", "declared gone"))
    fieldsets = (
        (None, {"fields": ("name", "architecture", "operating_system", "seen_version")}),
        (
            "Size",
            {"fields": ("cpu_count", "memory_mib", "disk_mib", "reserve_memory_mib", "reserve_disk_mib")},
        ),
        ("What is there", {"fields": readonly_fields}),
    )
    actions_detail = ("declare_gone",)

    @admin.display(description="memory", ordering="memory_mib")
    def memory(self, host: Host) -> str:
        """In words."""
        return mib(host.memory_mib)

    @admin.display(description="disk", ordering="disk_mib")
    def disk(self, host: Host) -> str:
        """In words."""
        return mib(host.disk_mib)

    @admin.display(description="cores")
    def cores(self, host: Host) -> SafeString | str:
        """Who has which core."""
        return format_html("{}{}", cores_picture(host), legend()) if host.pk else "shown after the first save"

    @admin.display(description="devices")
    def devices(self, host: Host) -> SafeString | str:
        """Who has which device."""
        return devices_picture(host) if host.pk else "shown after the first save"

    def lock_before_saving(self, obj: Host) -> None:
        """An edit of a host must not race with a reservation."""
        if obj.pk is not None:
            lock_host(obj.pk)

    def save_model(self, request: HttpRequest, obj: Host, form: Any, change: bool) -> None:
        """Saves, makes or removes the rows of cores, and checks that what fitted before still fits."""
        self.lock_before_saving(obj)
        kept = totals_above(host_environments(obj)) if change else {}
        super().save_model(request, obj, form, change)
        record_cores(obj, obj.cpu_count)
        check_host(obj, kept)
        warn(request, [*keep_host_in_step(obj), *overcommitted(obj)])

    @action(
        description="Declare gone",
        permissions=["change"],
        dialog={
            "title": "Declare this host gone?",
            "description": "Only when the machine no longer exists: the site will treat everything that ran on it as ended,"
            " start it again elsewhere, and never use this host again. This cannot be undone.",
            "form_class": None,
            "form_submit_text": "The machine is gone",
        },
    )
    def declare_gone(self, request: HttpRequest, form: Any, object_id: Any) -> HttpResponse:
        """The audited word of an operator."""
        by = request.user.get_username()
        return perform(self, request, object_id, lambda host: editing.declare_gone(host, by), "declared gone")


class DeviceInitForm(StrictForm):
    """One entry of a device's init."""


class DeviceInitInline(TabularInline):
    """What a container needs so that the device works inside; row by row, in a closed form."""

    model = DeviceInit
    form = DeviceInitForm
    formset = StrictFormSet
    fields = ("kind", "name", "value")
    extra = 0


@admin.register(Device)
class DeviceAdmin(EditedAdmin):
    """GPUs and other accelerators; detection makes those of NVIDIA, others are entered here with their init."""

    inlines = (DeviceInitInline,)
    list_display = ("uuid", "host", "kind", "model", "memory", "condition", when("seen_at", "last seen"))
    readonly_fields = (when("seen_at", "last seen"), when("missing_since"))
    list_filter = ("host", "health", "kind")
    search_fields = ("uuid", "model")
    fields = (
        *("host", "uuid", "kind", "platform", "model", "memory_mib", "driver_version", "health"),
        *(*readonly_fields, "seen_version"),
    )

    @admin.display(description="memory", ordering="memory_mib")
    def memory(self, device: Device) -> str:
        """In words."""
        return mib(device.memory_mib)

    @display(
        description="health",
        ordering="health",
        label={DeviceHealth.HEALTHY: "success", DeviceHealth.UNHEALTHY: "danger"},
    )
    def condition(self, device: Device) -> str:
        """healthy or unhealthy."""
        return device.health

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[Any, ...]:
        """A device is known by its uuid and stays on its host."""
        return (*self.readonly_fields, "host", "uuid") if obj else self.readonly_fields

    def save_model(self, request: HttpRequest, obj: Device, form: Any, change: bool) -> None:
        """An edit of a device must not race with a reservation, nor pass by the histories of who offers it."""
        form.edit = DeviceEdit(obj)
        super().save_model(request, obj, form, change)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Its init, which no running job may lose; and who measures the host gets the device too."""
        super().save_related(request, form, formsets, change)
        form.edit.finish(author(request, Door.PAGE))
        warn(request, keep_host_in_step(form.instance.host))


def warn(request: HttpRequest, texts: list[str]) -> None:
    """Shows what an operator should know after saving."""
    for text in texts:
        messages.warning(request, text)


@admin.register(Engine)
class EngineAdmin(ConfigurationAdmin):
    """Docker endpoints. The state changes by the buttons, so that no form can overwrite it."""

    list_display = (
        *("name", "host", "kind", "standing", "disk_mode", when("worker_seen_at", "worker last seen")),
        when("unreachable_since", "unreachable since"),
    )
    list_filter = ("state", "host")
    list_select_related = ("host",)
    search_fields = ("name",)
    readonly_fields = (
        *("state", "docker_id", "workspace_mode", "disk_mode", "found"),
        *(when("probed_at"), when("worker_seen_at", "worker last seen")),
        *(when("unreachable_since", "unreachable since"), when("images_cleaned_at", "images last cleaned")),
        *("network_granted", "network_found", when("network_tried_at", "network last tried")),
    )
    fieldsets = (
        (None, {"fields": ("name", "host", "kind", "state", "seen_version")}),
        ("Endpoint", {"fields": ("endpoint", "tls_ca", "tls_certificate", "tls_key")}),
        (
            "Upkeep",
            {
                "fields": (
                    *("image_retention_days", "image_cleanup_interval", "scan_policy"),
                    "payment_claim_interval",
                ),
                "description": "Images that the site brought are removed when unused for so long; an operator's own never.",
            },
        ),
        ("Measuring", {"fields": ("enable_benchmark",)}),
        ("What was found", {"fields": readonly_fields[1:]}),
    )
    actions_list = ("import_configuration",)
    actions_detail = ("activate", "drain", "disable", "import_here", "export_here")

    @display(description="state", ordering="state", label=STATES)
    def standing(self, engine: Engine) -> str:
        """active, draining or disabled."""
        return engine.state

    @admin.display(description="last probe")
    def found(self, engine: Engine) -> SafeString | str:
        """What the last probe found."""
        return pairs(engine.facts)

    @admin.display(description="network")
    def network_found(self, engine: Engine) -> SafeString | str:
        """Why it grants none, or what of the host is closed to jobs."""
        return pairs(engine.network_facts)

    def lock_before_saving(self, obj: Engine) -> None:
        """An edit of an engine must not race with a reservation."""
        if obj.host_id is not None:
            lock_host(obj.host_id)

    def save_model(self, request: HttpRequest, obj: Engine, form: Any, change: bool) -> None:
        """Saves, and makes or retires the benchmark environment as the switch says."""
        super().save_model(request, obj, form, change)
        warn(request, keep_in_step(obj))

    @action(description="Import", permissions=["import"], url_path="import", icon="upload")
    def import_configuration(self, request: HttpRequest) -> HttpResponse:
        """The page stands with the environments."""
        return redirect(IMPORT_PAGE)

    @action(description="Import", permissions=["import"], url_path="import", icon="upload")
    def import_here(self, request: HttpRequest, object_id: Any) -> HttpResponse:
        """The same page, with this engine chosen."""
        return redirect(f"{reverse(IMPORT_PAGE)}?{urlencode({'engine': object_id})}")

    @action(description="Export", permissions=["export"], url_path="export", icon="download")
    def export_here(self, request: HttpRequest, object_id: Any) -> HttpResponse:
        """The engine with its environments, as a file."""
        engine = self.get_object(request, str(object_id))
        if engine is None or engine.kind != EngineKind.DOCKER:
            raise Http404
        return export_file(engine)

    @action(
        description="Activate",
        permissions=["change"],
        dialog={
            "title": "Activate this engine?",
            "description": "Its worker starts jobs. Every environment on it is checked first.",
            "form_class": None,
            "form_submit_text": "Activate",
        },
    )
    def activate(self, request: HttpRequest, form: Any, object_id: Any) -> HttpResponse:
        """→ active."""
        return perform(self, request, object_id, editing.activate_engine, "activated")

    @action(
        description="Drain",
        permissions=["change"],
        dialog={
            "title": "Drain this engine?",
            "description": "It starts nothing new; running jobs go on to their end.",
            "form_class": None,
            "form_submit_text": "Drain",
        },
    )
    def drain(self, request: HttpRequest, form: Any, object_id: Any) -> HttpResponse:
        """→ draining."""
        return perform(self, request, object_id, editing.drain_engine, "draining")

    @action(description="Disable", permissions=["change"])
    def disable(self, request: HttpRequest, object_id: Any) -> HttpResponse:
        """The page knows what the fleet has of its jobs, which stands above this layer."""
        return redirect(reverse("admin:fleet_disable", args=[object_id]))
