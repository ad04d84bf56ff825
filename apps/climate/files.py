"""Opening the files that climate scientists have: NetCDF 3 and 4, Zarr 2 and 3, DeepCAM's HDF5.

A file that is read again and again stays open, until its process forks: a data loader's worker
inherits no handle, with which the HDF5 library would read nonsense, fail or hang.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import scipy.io
import xarray as xr

from scadl_core import files

SUFFIXES, STORES = (".nc", ".nc4", ".cdf", ".netcdf", ".h5", ".hdf5"), (".zarr",)
find_files = partial(files.find_files, suffixes=SUFFIXES, stores=STORES)

# The order of the channels in `climate/data` of DeepCAM (Kurth et al. 2018, arXiv:1810.01993).
DEEPCAM_CHANNELS = (
    "TMQ", "U850", "V850", "UBOT", "VBOT", "QREFHT", "PS", "PSL",
    "T200", "T500", "PRECT", "TS", "TREFHT", "Z1000", "Z200", "ZBOT",
)  # fmt: skip
_kept: dict[tuple[Path, int, int], tuple[xr.Dataset, xr.Dataset]] = {}  # oldest use first
# Files a process keeps open: opening one takes longer than reading a small map. Of large ones,
# whose chunks the library caches, a few.
MOST_OPEN, FEW_OPEN, KEPT_BYTES = 384, 8, 256 * 2**20
ASSUMED_GRID = "has no coordinates; a global grid from pole to pole and from 0 degrees east"


@contextmanager
def open_fields(path: Path, decode_cf: bool = True) -> Iterator[xr.Dataset]:
    """Opens a file for reading, times undecoded; a DataError if it is damaged."""
    with naming(path):
        stored, decoded = _keep(path)
    with naming(path):
        yield decoded if decode_cf else stored


def _keep(path: Path) -> tuple[xr.Dataset, xr.Dataset]:
    """The file as it is stored and decoded, of one handle: the HDF5 library refuses to open a file
    twice while another is open for writing. Closed after others only, and never by the garbage
    collector, which may run in a thread.
    """
    status = path.stat()
    key = path, status.st_size, status.st_mtime_ns
    if key in _kept:
        _kept[key] = _kept.pop(key)  # to the end, as the last that was used
        return _kept[key]
    while len(_kept) >= MOST_OPEN or (
        len(_kept) >= FEW_OPEN and sum(size for _, size, *_ in _kept) > KEPT_BYTES
    ):
        _kept.pop(next(iter(_kept)))[0].close()
    with warnings.catch_warnings():
        # An illegal fill, or fills that differ in type only (CMIP6): xarray does the right thing.
        warnings.simplefilter("ignore", xr.SerializationWarning)
        stored = _open(path)
        _kept[key] = stored, xr.decode_cf(stored, decode_times=False)
    return _kept[key]


def _close_all() -> None:
    while _kept:
        _kept.popitem()[1][0].close()


os.register_at_fork(before=_close_all)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turns what libraries raise for a damaged file into an error that names it."""
    kind = "Zarr" if path.suffix.lower() in STORES else "NetCDF"
    with files.reading(path, kind):
        yield


def _open(path: Path) -> xr.Dataset:
    options = {"cache": False, "decode_cf": False}
    if path.is_dir():
        _refuse_pickles(path)
        return xr.open_dataset(path, engine="zarr", consolidated=False, **options)
    with path.open("rb") as stream:
        is_classic = stream.read(4) in (b"CDF\x01", b"CDF\x02")
    if is_classic:  # beyond its end the netCDF library reads zeros; SciPy notices
        scipy.io.netcdf_file(path, mmap=True).close()
    dataset = xr.open_dataset(path, engine="netcdf4", **options)
    if dataset.variables:
        return dataset
    dataset.close()
    return _deepcam(path, options)


def _refuse_pickles(store: Path) -> None:
    """Refuses Zarr arrays of pickled objects: reading them would run what they contain."""
    for page in (*store.rglob(".zarray"), *store.rglob("zarr.json")):
        if _names_pickle(json.loads(page.read_text(encoding="utf-8"))):
            raise ValueError(f"{page.parent.name} holds pickled objects, which are never loaded")


def _names_pickle(metadata: object) -> bool:
    if isinstance(metadata, dict):
        names = {str(metadata.get("id")), str(metadata.get("name"))}
        return any("pickle" in it for it in names) or any(map(_names_pickle, metadata.values()))
    return isinstance(metadata, list) and any(map(_names_pickle, metadata))


def _deepcam(path: Path, options: dict[str, bool]) -> xr.Dataset:
    """DeepCAM's HDF5 as variables on a latitude/longitude grid; else nothing, as of stats.h5."""
    try:
        stored = xr.open_dataset(path, engine="netcdf4", group="climate", **options)
    except OSError:  # no such group
        return xr.Dataset()
    if not {"data", "labels_0"} <= stored.variables.keys() or stored["data"].ndim != 3:
        stored.close()
        return xr.Dataset()
    stored = stored.rename(dict(zip(stored["data"].dims, ("lat", "lon", "channel"), strict=True)))
    rows, columns, channels = stored["data"].shape
    names = DEEPCAM_CHANNELS if channels == len(DEEPCAM_CHANNELS) else range(channels)
    fields = {str(name): stored["data"].isel(channel=i) for i, name in enumerate(names)}
    dataset = xr.Dataset(fields | {"LABELS": stored["labels_0"]}, attrs={"assumed": ASSUMED_GRID})
    dataset.set_close(stored.close)
    latitude, longitude = np.linspace(-90, 90, rows), np.arange(columns) * (360 / columns)
    return dataset.assign_coords(
        lat=("lat", latitude, {"units": "degrees_north"}),
        lon=("lon", longitude, {"units": "degrees_east"}),
    )
