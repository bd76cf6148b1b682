"""Imported by the process that contenders are forked from: Django is ready there, and no connection is open."""

import importlib

import django

django.setup()
importlib.import_module("tests.accounts.contention")
