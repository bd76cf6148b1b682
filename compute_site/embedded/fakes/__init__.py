"""Imitations of two providers: real HTTP servers on loopback, for the demo and the tests."""

from compute_site.embedded.fakes.lium import FakeLium
from compute_site.embedded.fakes.server import Fault
from compute_site.embedded.fakes.targon import FakeTargon

__all__ = ["FakeLium", "FakeTargon", "Fault"]
