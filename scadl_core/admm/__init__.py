"""Floor 2. Gradient-free training in which ranks own different layers and no derivative crosses
from one to another.

    net = nn.Sequential(...)
    fitted = fit(Problem(net, "cross_entropy", blocks=4), Data.of(x, y), World.start())
"""

from scadl_core.admm.data import Data as Data
from scadl_core.admm.engine import Setting as Setting
from scadl_core.admm.fit import Fitted as Fitted
from scadl_core.admm.fit import Stopping as Stopping
from scadl_core.admm.fit import fit as fit
from scadl_core.admm.problem import Problem as Problem
