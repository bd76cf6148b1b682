"""Starts everything the site stands on, on one machine, from an ordinary user's checkout.

Nothing here imports Django: these modules choose the settings that Django reads later.
"""
