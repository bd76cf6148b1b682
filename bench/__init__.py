"""Measurements, each beside what it is compared with, in one run on one machine. `./run bench`, or `python -m bench`."""
