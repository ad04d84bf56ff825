"""Floor 2. Second-order optimization: gradients preconditioned by Kronecker factors."""

from scadl_core.optim.kfac import KFAC as KFAC
