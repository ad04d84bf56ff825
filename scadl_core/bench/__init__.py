"""Floor 5. Peers side by side: `scadl bench NAME [--quick] [--out DIR]`; nobody imports it."""

from importlib.util import find_spec

from scadl_core.config.apps import find_apps

BENCHMARKS = ("admm", "claims", "comm", "compress", "kfac", "memory", "optimizers", "tuner")


def modules() -> dict[str, str]:
    """The module of each benchmark by its name; an app may bring one of its own.

    It has ``bench(quick, console)``, or, where it goes on after a stop, ``bench_into(folder, words,
    quick, console)``; either returns rows.
    """
    known = {name: f"{__name__}.{name}" for name in BENCHMARKS}
    for app in find_apps().values():
        if find_spec(f"{app.module}.bench") is not None:
            known[app.name] = f"{app.module}.bench"
    return known
