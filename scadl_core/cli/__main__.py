"""``python -m scadl_core.cli``, for launchers that start a Python module."""

from scadl_core.cli import script

script()
