"""Opening Zarr and DeepCAM's HDF5 like NetCDF; and files that would do harm."""

from __future__ import annotations

import netCDF4
import numpy as np
import pytest
import xarray as xr

from apps.climate.catalogue import Catalogue
from apps.climate.data import ClimateData
from apps.climate.files import find_files, open_fields
from apps.climate.sample import write_sample
from scadl_core.errors import DataError

LAT, LON = np.linspace(-60, 60, 5), np.arange(0, 360, 45.0)


def dataset(days=4, seed=0):
    rng = np.random.default_rng(seed)
    time = ("time", np.arange(days, dtype=float), {"units": "days since 2000-01-01"})
    values = rng.normal(280, 5, (days, 5, 8))
    values[0, 2, 3] = np.nan
    return xr.Dataset(
        {"t": (["time", "lat", "lon"], values.astype("f4"), {"units": "K"})},
        {"time": time, "lat": LAT, "lon": LON},
    )


@pytest.mark.parametrize("version", [2, 3])
def test_zarr_reads_as_netcdf_does(tmp_path, version):
    packed = {"t": {"scale_factor": 0.01, "add_offset": 280, "dtype": "i2", "_FillValue": -9}}
    dataset().to_netcdf(tmp_path / "a.nc", encoding=packed)
    store = tmp_path / "maps" / "a.zarr"
    dataset().to_zarr(store, encoding=packed, zarr_format=version, consolidated=False)
    assert find_files(tmp_path / "maps") == find_files(tmp_path / "maps" / "*.zarr") == [store]
    one, other = (Catalogue(find_files(path), ["t"]) for path in (tmp_path / "a.nc", store))
    assert one.keys == other.keys
    for key in one.keys:
        np.testing.assert_array_equal(one.read(key), other.read(key))
    assert np.isnan(other.read(other.keys[0])[0, 2, 3])


def test_a_zarr_of_pickles_is_refused_unread(tmp_path):
    store = tmp_path / "a.zarr"
    dataset().to_zarr(store, zarr_format=2, consolidated=False)
    page = store / "t" / ".zarray"
    text = page.read_text().replace('"filters": null', '"filters": [{"id": "p\\u0069ckle"}]')
    page.write_text(text)
    with pytest.raises(DataError, match=r"a\.zarr: cannot be read as Zarr \(t holds pickled objec"):
        Catalogue([store], ["t"])


def test_a_broken_zarr_is_named(tmp_path):
    (tmp_path / "a.zarr").mkdir()
    with pytest.raises(DataError, match=r"a\.zarr: cannot be read as Zarr"):
        Catalogue(find_files(tmp_path / "a.zarr"), ["t"])
    store = tmp_path / "b.zarr"
    dataset().to_zarr(store, zarr_format=3, consolidated=False)
    chunk = next(path for path in (store / "t" / "c").rglob("*") if path.is_file())
    chunk.write_bytes(b"\0" * 20)
    with pytest.raises(DataError, match=r"b\.zarr: cannot be read as Zarr"):
        catalogue = Catalogue([store], ["t"])
        [catalogue.read(key) for key in catalogue.keys]


def test_deepcam_reads_as_it_is(tmp_path):
    """The example set in both layouts holds the same maps."""
    inputs, read = ["PSL", "TMQ"], {}
    classes = ["background", "tropical_cyclone", "atmospheric_river"]
    split = {"by": "file", "val": 0.2, "test": 0.3, "gap": 0}
    for layout in ("climatenet", "deepcam"):
        write_sample(tmp_path / layout, 4, 2, 12, 16, layout=layout)
        data = read[layout] = ClimateData(tmp_path / layout, inputs, "LABELS", classes, split=split)
        assert len(data.files()) == 6 + (layout == "deepcam")  # and stats.h5
    for index in range(6):
        one, other = (data.samples("all").read(index, None) for data in read.values())
        for name in one:
            np.testing.assert_allclose(one[name], other[name], rtol=1e-6)  # latitudes in 32 bits
    grids = [data.catalogue.grid for data in read.values()]
    assert grids[0].difference(grids[1]) is None
    warnings = read["deepcam"].report().warnings
    assert any("has no coordinates; a global grid" in it for it in warnings)


def test_other_hdf5_has_no_fields(tmp_path):
    with netCDF4.Dataset(tmp_path / "a.h5", "w") as file:
        group = file.createGroup("climate")
        group.createDimension("x", 3)
        group.createVariable("data", "f4", ("x",))
    with open_fields(tmp_path / "a.h5") as found:
        assert not found.variables
    with pytest.raises(DataError, match=r"variable 'TMQ' is not in .*a\.h5"):
        Catalogue([tmp_path / "a.h5"], ["TMQ"])
