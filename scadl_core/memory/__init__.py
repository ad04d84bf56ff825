"""Memory that a network takes."""

from scadl_core.memory.accounting import AliveBytes as AliveBytes
from scadl_core.memory.accounting import SavedBytes as SavedBytes
from scadl_core.memory.activations import CompressedActivations as CompressedActivations
