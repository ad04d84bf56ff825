"""Memory that training keeps between the forward and the backward pass."""

from scadl_core.memory.accounting import SavedBytes as SavedBytes
