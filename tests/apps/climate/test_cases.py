"""What users of climate packages stumbled over, each as a case: C1 to C18.

The packages and their issues are named in the docstrings; the files are real where there is one.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from torch.utils.data import DataLoader

from apps.climate.catalogue import Catalogue
from apps.climate.data import ClimateData
from apps.climate.files import find_files, open_fields
from apps.climate.objects import components
from scadl_core.comm import World
from scadl_core.errors import DataError
from scadl_core.workflow.loaders import Loaders

LAT, LON = np.linspace(-60, 60, 7), np.arange(0, 360, 30.0)
DAYS = {"units": "days since 2000-01-01"}


def values(days=3, seed=0):
    return np.random.default_rng(seed).normal(280, 5, (days, len(LAT), len(LON))).astype("f4")


def write(path, field_THW, lat=LAT, lon=LON, start=0, **attrs):
    time = ("time", start + np.arange(len(field_THW), dtype=float), DAYS)
    fields = {"t": (["time", "lat", "lon"], field_THW, {"units": "K"} | attrs)}
    xr.Dataset(fields, {"time": time, "lat": lat, "lon": lon}).to_netcdf(path)
    return path


def read(path, name="t"):
    catalogue = Catalogue(find_files(path), [name])
    return np.stack([catalogue.read(key)[0] for key in catalogue.keys])


def labelled(path, **changes):
    settings = {"split": {"by": "time", "val": 0.2, "test": 0.2, "gap": 0}} | changes
    return ClimateData(path, ["t"], "t", ["usual", "high"], [285.0], **settings)


def test_c1_names_and_order_of_dimensions(tmp_path):
    """ClimateNet #8, climate_indices #386: names, order and singletons do not matter."""
    field = values()
    write(tmp_path / "a.nc", field)
    with xr.open_dataset(tmp_path / "a.nc", decode_times=False) as plain:
        odd = plain.rename(lat="nav_lat", lon="breite", time="valid_time")
        odd["breite"].attrs["units"] = "degrees_east"
        odd = odd.expand_dims(number=[0]).transpose("breite", "number", "nav_lat", "valid_time")
        odd.to_netcdf(tmp_path / "b.nc")
    np.testing.assert_array_equal(read(tmp_path / "b.nc"), field)


def test_c2_latitude_may_turn_from_date_to_date(tmp_path):
    """arco-era5 #60, #70; earth2studio #710."""
    field = values(4)
    write(tmp_path / "a.nc", field[:2])
    write(tmp_path / "b.nc", field[2:, ::-1], lat=LAT[::-1], start=2)
    np.testing.assert_array_equal(read(tmp_path / "?.nc"), field)


@pytest.mark.parametrize("origin", [-180, -90, 90, 330])
def test_c3_longitudes_from_any_origin(tmp_path, origin):
    """weathernext #61, aurora #118, WeatherGenerator #168."""
    field, lon = values(), origin + np.arange(0, 360, 30.0)
    write(tmp_path / "a.nc", field)
    write(tmp_path / "b.nc", field[..., np.mod(lon, 360).astype(int) // 30], lon=lon)
    np.testing.assert_array_equal(read(tmp_path / "b.nc"), read(tmp_path / "a.nc"))


@pytest.mark.parametrize("turn", range(0, 12, 3))
def test_c4_an_object_at_the_date_line_is_one(turn):
    """WAM2layers #502; AR_alg_v2 PR 1."""
    mask = np.zeros((7, 12), bool)
    mask[3, [10, 11, 0, 1]] = True
    assert components(np.roll(mask, turn, 1), periodic=True).max() == 1


def test_c5_each_file_is_unpacked_by_its_own_scale(shared_data):
    """xarray #4282, #5739, #7039: two ERA5 files with differing scale_factor and add_offset."""
    files = [shared_data / "climate" / f"era5_2t_{number}.nc" for number in (1, 2)]
    for file in files:
        with xr.open_dataset(file) as dataset:
            expected = np.sort(dataset["t2m"].values.ravel())
        np.testing.assert_allclose(np.sort(read(file, "t2m").ravel()), expected, rtol=1e-6)
    with xr.open_dataset(files[0], mask_and_scale=False) as dataset:
        packed = dataset["t2m"]
        expected = packed.values.astype(float) * packed.scale_factor + packed.add_offset
    found = read(files[0], "t2m")
    np.testing.assert_allclose(np.sort(found.ravel()), np.sort(expected.ravel()), rtol=1e-6)


def test_c6_unpacking_multiplies_first(tmp_path):
    """xarray #4548: CF's value is packed x scale + offset, not (packed - offset) x scale."""
    packed = np.arange(84, dtype="i2").reshape(1, 7, 12)
    write(tmp_path / "a.nc", packed, scale_factor=0.5, add_offset=270.0)
    np.testing.assert_array_equal(read(tmp_path / "a.nc"), packed * 0.5 + 270)


@pytest.mark.parametrize(
    ("fill", "attrs"),
    [(-900.0, {"missing_value": np.float32(-900)}), (9.96921e36, {}), (np.inf, {})],
)
def test_c7_fills_declared_or_not(tmp_path, fill, attrs):
    """xarray #2742, scream #2262."""
    field = values()
    field[:, 1, 2] = fill
    found = read(write(tmp_path / "a.nc", field, **attrs))
    assert np.isnan(found[:, 1, 2]).all()
    assert np.isfinite(np.delete(found.reshape(3, -1), 1 * 12 + 2, 1)).all()


def test_c8_missing_regions_and_constant_channels(tmp_path, shared_data):
    """anemoi-core #370, graph_weather #59: NaN is left out, a constant divides by one."""
    file = shared_data / "climate" / "mrsos_HadGEM2.nc"
    facts = ClimateData(file, ["mrsos"]).facts()
    with xr.open_dataset(file, decode_times=False) as dataset:
        expected = dataset["mrsos"].values.astype(float)
    assert facts["mean_C"][0] == pytest.approx(np.nanmean(expected), rel=1e-9)
    assert facts["std_C"][0] == pytest.approx(np.nanstd(expected), rel=1e-9)
    constant = write(tmp_path / "a.nc", np.full((5, 7, 12), 290.0, "f4"))
    data = labelled(constant)
    assert data.facts()["std_C"] == [1.0]
    assert "t is constant: nothing can be learnt from it" in data.report().warnings


@pytest.mark.parametrize(
    ("file", "name", "first", "last"),
    [
        ("A1B_north_america.nc", "air_temperature", "1860-06-01", "2099-06-01"),
        ("tas_day_CESM2-WACCM.nc", "tas", "2000-01-01", "2009-12-31"),
        ("tas_cmip3_giss_noleap.nc", "tas", "2046-01-01", "2065-12-31"),
    ],
)
def test_c9_calendars(shared_data, file, name, first, last):
    """xarray #8298, climpred #299: 360 days, no leap years, years before the epoch."""
    keys = Catalogue([shared_data / "climate" / file], [name]).keys
    assert (keys[0][:10], keys[-1][:10]) == (first, last)
    assert keys == sorted(keys)


def test_c10_the_new_layout_of_the_climate_data_store(tmp_path):
    """climate_indices #543, TopoPyScale #114: valid_time, number, expver."""
    field = values()
    seconds = {"units": "seconds since 1970-01-01", "standard_name": "time"}
    coords = {
        "valid_time": ("valid_time", np.arange(3) * 3600, seconds),
        "latitude": LAT[::-1],
        "longitude": LON,
        "number": 0,
        "expver": ("valid_time", ["0001"] * 3),
    }
    dims = ["valid_time", "latitude", "longitude"]
    xr.Dataset({"t": (dims, field[:, ::-1], {"units": "K"})}, coords).to_netcdf(tmp_path / "a.nc")
    catalogue = Catalogue([tmp_path / "a.nc"], ["t"])
    assert catalogue.keys[1] == "1970-01-01T01:00:00"
    np.testing.assert_array_equal(read(tmp_path / "a.nc"), field)


def test_c11_a_file_without_a_variable_is_said(tmp_path):
    """xarray #508, xmitgcm #303: nothing becomes NaN in silence."""
    write(tmp_path / "a.nc", values())
    other = write(tmp_path / "b.nc", values(seed=1), start=3)
    with xr.open_dataset(other, decode_times=False) as dataset:
        renamed = dataset.load().rename(t="u")
    renamed.to_netcdf(tmp_path / "b.nc")
    both = Catalogue([tmp_path / "a.nc"], ["t"])
    assert len(both.keys) == 3
    with pytest.raises(DataError, match=r"no sample has all of t, u: 3 of 6 samples lack t"):
        Catalogue(find_files(tmp_path), ["t", "u"])


def test_c12_coordinates_that_differ_by_rounding_are_equal(tmp_path, shared_data):
    """dfm_tools #574: an outer join would double the grid. Other grids are refused."""
    field = values(4)
    write(tmp_path / "a.nc", field[:2])
    noise = np.random.default_rng(0).uniform(-1e-5, 1e-5, 12)
    write(tmp_path / "b.nc", field[2:], np.float32(LAT + 1e-6), np.float32(LON + noise), 2)
    np.testing.assert_array_equal(read(tmp_path / "?.nc"), field)
    files = [shared_data / "climate" / f"tas_{name}.nc" for name in ("day_MIROC6", "FGOALS-g3")]
    with pytest.raises(DataError, match="are on differing grids"):
        Catalogue(files, ["tas"])


def test_c13_missing_steps_are_reported(tmp_path):
    """anemoi-datasets #109, icenet #59."""
    write(tmp_path / "a.nc", values(6))
    write(tmp_path / "b.nc", values(4, seed=1), start=9)
    (warning,) = [it for it in labelled(tmp_path).report().warnings if "steps are missing" in it]
    assert "between 2000-01-06T00:00:00 and 2000-01-10T00:00:00" in warning


@pytest.mark.parametrize("workers", [0, 2])
def test_c14_reading_processes_give_the_same_samples(tmp_path, workers):
    """pytorch #11887, xbatcher #121: an HDF5 handle must not cross a fork. Read in both first."""
    data = labelled(write(tmp_path / "a.nc", values(20)), cache_GiB=0)
    samples = data.samples("train")
    expected = [samples.read(index, None)["image_CHW"] for index in range(len(samples))]
    loader = Loaders(2, workers, 0, World.start()).evaluation(samples)
    assert isinstance(loader, DataLoader)
    for _ in range(2):
        found = np.concatenate([batch["image_CHW"].numpy() for batch in loader])
        np.testing.assert_array_equal(found, np.stack(expected))


def test_a_fork_inherits_no_open_file(tmp_path, run_ranks):
    """After many files the HDF5 library failed on a second handle of an inherited one."""
    file = write(tmp_path / "a.nc", values(4))

    def is_open() -> bool:
        handles = Path("/proc/self/fd").iterdir()
        return str(file) in [str(it.readlink()) for it in handles if it.is_symlink()]

    with open_fields(file):
        assert is_open()
    assert run_ranks(1, is_open) == [False]
    with open_fields(file) as again:
        assert again["t"].shape[0] == 4


def test_c16_several_labellings_of_one_map_stay_together(tmp_path):
    """ClimateNet #5."""
    for day in range(1, 11):
        for number in (1, 2):
            name = f"data-2003-06-{day:02}-01-{number}.nc"
            fields = {
                "t": (["time", "lat", "lon"], values(1, seed=day)),
                "LABELS": (["time", "lat", "lon"], np.full((1, 7, 12), number - 1)),
            }
            coords = {"time": [name], "lat": LAT, "lon": LON}
            xr.Dataset(fields, coords).to_netcdf(tmp_path / name)
    split = {"by": "time", "val": 0.2, "test": 0.2, "gap": 1}
    data = ClimateData(tmp_path, ["t"], "LABELS", ["no", "yes"], split=split)
    days = {name: [int(key[13:15]) for key in keys] for name, keys in data.splits.items()}
    assert days["train"] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert (days["val"], days["test"]) == ([7, 7], [9, 9, 10, 10])


@pytest.mark.parametrize("file", ["tas_ICON.nc", "icon_atm_2d.nc"])
def test_c17_a_grid_without_rows_is_refused_by_name(shared_data, file):
    """climatereconstructionAI #29."""
    with pytest.raises(DataError, match=r"unstructured grid of ICON .*; regrid it .* cdo remapdis"):
        Catalogue([shared_data / "climate" / file], ["tas"])


def test_c18_a_time_that_is_no_time(tmp_path):
    """ClimateNet's own files: `time` is a text, the name of the file."""
    fields = {"t": (["time", "lat", "lon"], values(1))}
    coords = {"time": ["data-2003-06-01-01-1.nc"], "lat": LAT, "lon": LON}
    xr.Dataset(fields, coords).to_netcdf(tmp_path / "data-2003-06-01-01-1.nc")
    assert Catalogue(find_files(tmp_path), ["t"]).keys == ["data-2003-06-01-01-1.nc"]
