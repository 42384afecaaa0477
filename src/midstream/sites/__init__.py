"""Streams at different sites: what to ship where, as part of the plan, and how the sites change it."""
