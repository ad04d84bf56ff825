"""The embedded example data set: simulated jets in the file layout of JetClass.

Qu et al. 2022, arXiv:2202.03772:

    <path>/train/ZJetsToNuNu_000.root, HToBB_000.root ...   TTree `tree`: part_* jagged, jet_* and
    <path>/test/...                                         label_* flat, a process a file

Labels are of mixed types (float, bool, int32), and `part_deta` is signed by the jet's side, as
there. Beyond JetClass there is `gen_weight`, of which a share is negative, as event generators at
next-to-leading order give it; `jet_sdmass` is the mass of all constituents, without grooming. What
is in a jet: `shower.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import awkward as ak
import numpy as np
import uproot
from numpy.typing import NDArray

from apps.hep import shower
from apps.hep.shower import Floats, Rng
from scadl_core.errors import ConfigError, nearest
from scadl_core.files import folder_aside

TREE = "tree"
PROCESSES = {  # class: the name of its files
    "QCD": "ZJetsToNuNu",
    "Hbb": "HToBB",
    "Hgg": "HToGG",
    "Zqq": "ZToQQ",
    "Wqq": "WToQQ",
    "Tbqq": "TTBar",
}
LABELS = dict(  # of JetClass, with their types
    zip(("QCD", "Hbb", "Hcc", "Hgg", "H4q", "Hqql", "Zqq", "Wqq", "Tbqq", "Tbl"),
        ("f4", *"?????", *("i4",) * 4), strict=True)
)  # fmt: skip
PDG = {"QCD": 21, "Hbb": 25, "Hgg": 25, "Wqq": 24, "Zqq": 23, "Tbqq": 6}  # of the parent
KINDS = ("ChargedHadron", "NeutralHadron", "Photon", "Electron", "Muon")  # as in shower.Tracks
FORMATS = ("ttree", "rntuple")
FILE_JETS, CLUSTER_JETS = 32768, 4096  # at most; a cluster is read at once
AXES_APART = 0.2


def write_sample(
    path: str | Path,
    train_jets: int = 16384,
    test_jets: int = 8192,
    classes: Sequence[str] = ("QCD", "Hbb", "Wqq", "Tbqq"),
    pt_GeV: Sequence[float] = (500.0, 1000.0),
    negative_share: float = 0.05,
    seed: int = 0,
    format: str = "ttree",
) -> None:
    """Writes the example data set, whole or not at all, unless its folder exists.

    Jets are shared evenly among the classes. Those of a file depend on the seed, the split, the
    class and the file's number alone.

    Args:
        path: The folder to write.
        train_jets: Jets below ``train/``.
        test_jets: Jets below ``test/``.
        classes: Names out of ``PROCESSES``.
        pt_GeV: Range of the transverse momentum of the parents.
        negative_share: Share of jets with a negative weight.
        seed: Of all random numbers.
        format: ``ttree`` or ``rntuple``.

    Raises:
        ConfigError: A class or format that is not known, or a share outside [0, 0.5).
    """
    for name in classes:
        if name not in PROCESSES:
            raise ConfigError(f"data.sample.classes: got {name!r}{nearest(name, PROCESSES)}")
    if format not in FORMATS:
        raise ConfigError(f"data.sample.format: got {format!r}{nearest(format, FORMATS)}")
    if not 0 <= negative_share < 0.5:
        raise ConfigError(f"data.sample.negative_share: expected 0 to 0.5, got {negative_share}")
    if Path(path).exists():
        return
    with folder_aside(Path(path)) as written:
        for index, (split, jets) in enumerate({"train": train_jets, "test": test_jets}.items()):
            (written / split).mkdir()
            for number, name in enumerate(classes):
                share = len(range(number, jets, len(classes)))
                for part, count in enumerate(_parts(share, FILE_JETS)):
                    file = written / split / f"{PROCESSES[name]}_{part:03}.root"
                    keys = [seed, index, list(PROCESSES).index(name), part]
                    rng = np.random.default_rng(keys)
                    write_file(file, rng, name, count, pt_GeV, negative_share, format)


def _parts(total: int, most: int) -> list[int]:
    return [min(most, total - start) for start in range(0, total, most)]


def write_file(
    file: Path, rng: Rng, name: str, jets: int, pt_GeV: Sequence[float], negative: float, kind: str
) -> None:
    """Writes a file of jets of one class, a cluster at a time."""
    with uproot.recreate(file, compression=uproot.LZ4(1)) as root:
        tree = None
        for count in _parts(jets, CLUSTER_JETS):
            columns = simulate(rng, name, count, pt_GeV, negative)
            if tree is None and kind == "ttree":
                types = {key: it.type.content if isinstance(it, ak.Array) else it.dtype
                         for key, it in columns.items()}  # fmt: skip
                tree = root.mktree(TREE, types, counter_name=lambda _: "part_count")
            if tree is None:
                tree = root.mkrntuple(TREE, columns)
            else:
                tree.extend(columns)


def simulate(
    rng: Rng, name: str, count: int, pt_GeV: Sequence[float], negative: float
) -> dict[str, ak.Array | NDArray]:
    """The branches of some jets of one class."""
    pt_J, eta_J = rng.uniform(*pt_GeV, count), rng.uniform(-2, 2, count)
    phi_J = rng.uniform(-np.pi, np.pi, count)
    hard = shower.shower(rng, shower.partons(rng, name, pt_J, eta_J, phi_J))
    both = np.concatenate([hard, shower.underlying(rng, eta_J, phi_J)])
    columns = _jets(*shower.detect(rng, both, eta_J, phi_J), count)
    columns |= {f"label_{it}": np.full(count, it == name, dtype) for it, dtype in LABELS.items()}
    aux = {"pt": pt_J, "eta": eta_J, "phi": phi_J, "pid": np.full(count, PDG[name])}
    columns |= {f"aux_genpart_{it}": values.astype(np.float32) for it, values in aux.items()}
    sign = np.where(rng.random(count) < negative, -1, 1)
    return columns | {"gen_weight": (sign * rng.lognormal(0, 0.3, count)).astype(np.float32)}


def _jets(found: NDArray, seen: dict[str, NDArray], count: int) -> dict[str, ak.Array | NDArray]:
    """Constituents and jets of JetClass, from measured particles sorted by jet."""
    jet, number_J = found["jet"], np.bincount(found["jet"], minlength=count)
    momentum_P4 = shower.four_momentum(found["pt"], found["eta"], found["phi"], 0 * found["pt"])
    energy, x, y, z = (np.bincount(jet, it, minlength=count) for it in momentum_P4.T)
    pt, phi = np.hypot(x, y), np.arctan2(y, x)
    eta = np.arcsinh(z / np.maximum(pt, 1e-9))
    kind = seen.pop("kind")
    parts = dict(zip(("energy", "px", "py", "pz"), momentum_P4.T, strict=True)) | seen
    parts["deta"] = (found["eta"] - eta[jet]) * np.where(eta[jet] >= 0, 1, -1)
    parts["dphi"] = shower.wrap(found["phi"] - phi[jet])
    flat = {f"part_{name}": it.astype(np.float32) for name, it in parts.items()}
    flat |= {f"part_is{it}": (kind == n).astype("i4") for n, it in enumerate(KINDS)}
    jets = {"pt": pt, "eta": eta, "phi": phi, "energy": energy, "nparticles": number_J}
    jets["sdmass"] = np.sqrt(np.maximum(energy**2 - x**2 - y**2 - z**2, 0))
    jets |= _subjettiness(found, number_J)
    columns: dict[str, ak.Array | NDArray]
    columns = {name: ak.unflatten(it, number_J) for name, it in flat.items()}
    return columns | {f"jet_{name}": it.astype(np.float32) for name, it in jets.items()}


def _subjettiness(found: NDArray, number_J: NDArray) -> dict[str, Floats]:
    """tau1 to tau4: how far from 1 to 4 axes the momentum is (Thaler and Van Tilburg 2011,
    arXiv:1011.2268, eq. 2.1); the axes are the hardest particles that lie apart.
    """
    there = np.arange(max(int(number_J.max(initial=0)), 1)) < number_J[:, None]
    padded = np.zeros((3, *there.shape))
    padded[:, there] = found["pt"], found["eta"], found["phi"]
    (pt, eta, phi), row, tau = padded, np.arange(len(there)), {}
    nearest_JP, total = np.full(there.shape, shower.CONE), np.maximum(pt.sum(1), 1e-9)
    for axes in range(1, 5):
        far = pt * (nearest_JP > AXES_APART)
        axis = far.argmax(1)
        away = np.hypot(eta - eta[row, axis, None], shower.wrap(phi - phi[row, axis, None]))
        nearest_JP = np.minimum(nearest_JP, np.where(far.max(1)[:, None] > 0, away, np.inf))
        tau[f"tau{axes}"] = (pt * nearest_JP).sum(1) / total / shower.CONE
    return tau
