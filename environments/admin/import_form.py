"""What an import from the admin asks for."""

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import UploadedFile
from unfold.widgets import (
    UnfoldAdminFileFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldBooleanWidget,
)

from environments.importing import Choice, docker_engines, read_tokens
from environments.models import Engine, Host

MAX_BYTES = 1024 * 1024
CODE = {"spellcheck": "false", "style": "font-family: ui-monospace, monospace"}


class ImportForm(forms.Form):
    """A configuration, and how it is to be imported. `source` is the field that it came from."""

    file = forms.FileField(
        required=False,
        widget=UnfoldAdminFileFieldWidget,
        help_text="A JSON file as Ocean Node takes it, or as this site exports it; at most 1 MiB.",
    )
    text = forms.CharField(
        required=False,
        strip=False,
        max_length=MAX_BYTES,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 14, **CODE}),
        help_text="The same, pasted; leave it empty when you choose a file.",
    )
    engine = forms.ModelChoiceField(
        docker_engines(),
        required=False,
        empty_label="the one that the configuration names",
        widget=UnfoldAdminSelectWidget,
        help_text="The engine it is for. Left open: the one with its endpoint, or the only one there is.",
    )
    host = forms.ModelChoiceField(
        Host.objects.order_by("name"),
        required=False,
        empty_label="any",
        widget=UnfoldAdminSelectWidget,
        help_text="The engine is on this host; if there is none yet, it is made there, disabled.",
    )
    tokens = forms.CharField(
        required=False,
        label="Fee tokens",
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 2, **CODE}),
        help_text="Default fee token of a chain, one line each, for prices that name none, for example"
        " 1=0x967da4048cD07aB37855c090aAF366e4ce1b9F48.",
    )
    replace = forms.BooleanField(
        required=False,
        widget=UnfoldBooleanWidget,
        label="Retire what is not in it",
        help_text="Environments of its engines that it does not name are retired for good.",
    )
    activate = forms.BooleanField(
        required=False,
        widget=UnfoldBooleanWidget,
        label="Activate the engine",
        help_text="A disabled engine takes jobs afterwards.",
    )

    def clean_file(self) -> str:
        """The text of the file; empty without one. Raises ValidationError."""
        upload: UploadedFile | None = self.cleaned_data["file"]
        if upload is None:
            return ""
        if (upload.size or 0) > MAX_BYTES:
            raise ValidationError(f"{upload.size} bytes are more than {MAX_BYTES}, the most that is read.")
        try:
            return upload.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValidationError(f"This is no text in UTF-8: see byte {error.start}.") from error

    def clean_tokens(self) -> dict[str, str]:
        """Address by chain id. Raises ValidationError."""
        return read_tokens(line for line in self.cleaned_data["tokens"].splitlines() if line.strip())

    def clean(self) -> dict[str, Any]:
        """A file or a text, and not both."""
        cleaned = super().clean() or self.cleaned_data
        file, text = cleaned.get("file"), (cleaned.get("text") or "").strip()
        if file and text:
            self.add_error("text", "There is a file and a text; keep one of them.")
        elif not file and not text and not {"file", "text"} & set(self.errors):
            self.add_error("file", "Choose a file, or paste the configuration below.")
        return cleaned

    @property
    def configuration(self) -> str:
        return self.cleaned_data["file"] or self.cleaned_data["text"]

    @property
    def choice(self) -> Choice:
        """As the form says, of a form that is valid; a dry run."""
        engine, host = self.cleaned_data["engine"], self.cleaned_data["host"]
        return Choice(
            engine=engine.name if engine else "",
            host=host.name if host else "",
            replace=self.cleaned_data["replace"],
            activate=self.cleaned_data["activate"],
            tokens=self.cleaned_data["tokens"],
            dry_run=True,
        )


def filled_form(configuration: str, choice: Choice) -> ImportForm:
    """The form with an earlier answer as text: a browser does not send a file twice."""
    engine = Engine.objects.filter(name=choice.engine).first()
    host = Host.objects.filter(name=choice.host).first()
    return ImportForm(
        initial={
            "text": configuration,
            "engine": engine and engine.pk,
            "host": host and host.pk,
            "tokens": "\n".join(f"{chain}={address}" for chain, address in (choice.tokens or {}).items()),
            "replace": choice.replace,
            "activate": choice.activate,
        }
    )
