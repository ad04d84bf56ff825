"""Floor 5. Peers side by side: `scadl bench NAME [--quick] [--out DIR]`; nobody imports it."""

BENCHMARKS = ("admm", "comm", "compress", "kfac", "memory", "optimizers", "tuner")
