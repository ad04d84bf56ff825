"""What a step costs on a machine, predicted: the plan of a run, and larger machines."""

from scadl_core.tuning.costs import Cost as Cost
from scadl_core.tuning.costs import predict as predict
from scadl_core.tuning.machine import Machine as Machine
from scadl_core.tuning.network import Network as Network
from scadl_core.tuning.plan import Curvature as Curvature
from scadl_core.tuning.plan import Plan as Plan
