"""From a configuration to a run folder: compose, build, train, evaluate, predict, report."""
