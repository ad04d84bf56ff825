"""Memory that a network takes."""

from scadl_core.memory.accounting import AliveBytes as AliveBytes
from scadl_core.memory.accounting import SavedBytes as SavedBytes
from scadl_core.memory.activations import CompressedActivations as CompressedActivations
from scadl_core.memory.budget import largest_batch as largest_batch
from scadl_core.memory.diagnosis import gradient_errors as gradient_errors
