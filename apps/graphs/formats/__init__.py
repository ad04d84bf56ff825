"""Readers, one a family of formats; each gives a :class:`apps.graphs.raw.Raw`."""
