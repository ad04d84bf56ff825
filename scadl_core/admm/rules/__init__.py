"""What a block does in an iteration: one small interface, several methods."""

from scadl_core.admm.rules.block_admm import BlockADMM as BlockADMM
from scadl_core.admm.rules.pdadmm import PdADMM as PdADMM
from scadl_core.admm.rules.rule import Rule as Rule
