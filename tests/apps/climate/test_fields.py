from __future__ import annotations

import netCDF4
import numpy as np
import pytest
import xarray as xr

from apps.climate.fields import Channel, LevelError, find_field, open_fields
from scadl_core.errors import ConfigError, DataError


def find(path, name):
    with open_fields(path) as dataset:
        found = find_field(dataset, path, Channel.parse(name))
        return found, found.read(dataset, 0)


def write(path, dims, coords=None, unit="hPa", **attrs):
    """A variable v with the values 0, 1, 2 ... in the order given, on a small grid."""
    sizes = {"lat": 3, "lon": 4, "time": 2, "level": 2, "number": 1, "step": 2, "sample": 2}
    known = {"lat": [-10.0, 0, 10], "lon": [0.0, 10, 20, 30], "level": ("level", [500.0, 850.0])}
    known["level"] = ("level", [500.0, 850.0], {"units": unit} if unit else {})
    coords = {name: known[name] for name in dims if name in known} | (coords or {})
    shape = [sizes[name] for name in dims]
    values = np.arange(np.prod(shape), dtype="f4").reshape(shape)
    xr.Dataset({"v": (dims, values, attrs)}, coords).to_netcdf(path)
    return values


@pytest.mark.parametrize(
    ("file", "variable", "found"),
    [
        ("tas_ICON.nc", "tas", r"unstructured grid or at points \(latitude\(i\)"),
        ("tos_CESM2-FV2.nc", "tos", r"curvilinear or projected grid \(lat\(nlat, nlon\)"),
        ("psl_CORDEX.nc", "psl", r"curvilinear or projected grid \(lat\(rlat, rlon\)"),
        ("wrf_cropped.nc", "T2", r"curvilinear or projected grid \(XLAT\(Time, south_north"),
        ("icon_atm_2d.nc", "tas", r"at points \(clat\(ncells\) in radian"),
        ("toa_brightness_stereographic.nc", "data", r"projected grid \(lat\(y, x\)"),
        ("daily_surface_cancities_1990-1993.nc", "tas", r"at points \(lat\(location\)"),
    ],
)
def test_other_kinds_of_grid_are_refused(shared_data, file, variable, found):
    with pytest.raises(DataError, match=f"{file}: variable '{variable}' is on .*{found}") as error:
        find(shared_data / "climate" / file, variable)
    assert "regrid it" in str(error.value)
    assert "\n" not in str(error.value)


def test_radians_and_missing_coordinates_are_refused(tmp_path):
    radians = {"lat": ("lat", [0.0, 0.1, 0.2], {"units": "radian"})}
    write(tmp_path / "a.nc", ["lat", "lon"], radians)
    with pytest.raises(DataError, match=r"coordinates in radians \(lat\(lat\) in radian"):
        find(tmp_path / "a.nc", "v")
    xr.Dataset({"v": (["y", "x"], np.ones((2, 2)))}).to_netcdf(tmp_path / "b.nc")
    with pytest.raises(DataError, match=r"no latitude and longitude, only y\(y\), x\(x\)"):
        find(tmp_path / "b.nc", "v")


@pytest.mark.parametrize(
    ("file", "variable", "key", "calendar", "count"),
    [
        ("tas_day_MIROC6.nc", "tas", "2015-01-01T12:00:00", "standard", 1),
        ("tas_FGOALS-g3.nc", "tas", "1850-01-16T12:00:00", "noleap", 1),
        ("tas_day_CESM2-WACCM.nc", "tas", "2000-01-01T00:00:00", "noleap", 3650),
        ("mrsos_HadGEM2.nc", "mrsos", "2005-12-01T12:00:00", "360_day", 1),
        ("uwnd_mean.nc", "uwnd", "1970-01-01T00:00:00", "standard", 12),
        ("A1B_north_america.nc", "air_temperature", "1860-06-01T00:00:00", "360_day", 240),
        ("era5_2t_1.nc", "t2m", "2021-03-01T12:00:00", "standard", 1),
    ],
)
def test_real_times(shared_data, file, variable, key, calendar, count):
    field, _ = find(shared_data / "climate" / file, variable)
    assert (field.keys[0], field.calendar, len(field.keys)) == (key, calendar, count)


@pytest.mark.parametrize("file", ["era5_2t_1.nc", "era5_2t_2.nc", "mrsos_HadGEM2.nc"])
def test_packed_and_missing_values_are_as_netcdf4_decodes_them(shared_data, file):
    path, name = shared_data / "climate" / file, {"e": "t2m", "m": "mrsos"}[file[0]]
    field, values_HW = find(path, name)
    with netCDF4.Dataset(path) as dataset:
        expected = np.ma.filled(dataset[name][0].astype(float), np.nan)
    np.testing.assert_allclose(field.grid.from_canonical(values_HW), expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["t@500hPa", "t@500", "t@50000Pa", "t@500millibars"])
def test_real_levels(shared_data, name):
    path = shared_data / "climate" / "era5_pl_t_z_500_850_test4.nc"
    field, values_HW = find(path, name)
    with netCDF4.Dataset(path) as dataset:
        expected = dataset["t"][0, dataset["level"][:].tolist().index(500)]
    np.testing.assert_allclose(field.grid.from_canonical(values_HW), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("unit", "name", "index"),
    [("Pa", "v@8.5hPa", 1), ("Pa", "v@500", 0), ("m", "v@0.85km", 1), ("", "v@850hPa", 1)],
)
def test_levels_by_unit(tmp_path, unit, name, index):
    values = write(tmp_path / "a.nc", ["level", "lat", "lon"], unit=unit)
    np.testing.assert_array_equal(find(tmp_path / "a.nc", name)[1], values[index])


def test_level_that_is_missing_lists_those_there(tmp_path, shared_data):
    path = shared_data / "climate" / "era5_pl_t_z_500_850_test4.nc"
    with pytest.raises(LevelError, match="has no level 300hPa; levels there: t@500hPa, t@850hPa"):
        find(path, "t@300hPa")
    with pytest.raises(LevelError, match="needs a level; levels there: t@500hPa, t@850hPa"):
        find(path, "t")
    write(tmp_path / "a.nc", ["lat", "lon"])
    with pytest.raises(LevelError, match="has no level 500m; levels there: none"):
        find(tmp_path / "a.nc", "v@500m")
    with pytest.raises(DataError, match="dimensions level, step beside time"):
        write(tmp_path / "b.nc", ["level", "step", "lat", "lon"], {"step": [0, 6]})
        find(tmp_path / "b.nc", "v@500hPa")
    with pytest.raises(ConfigError, match="write a level as in t@500hPa"):
        Channel.parse("t@surface")


def test_any_order_of_dimensions_singletons_and_valid_time(tmp_path):
    hours = ("valid_time", [0, 6], {"units": "hours since 2000-01-01"})
    dims = ["lon", "number", "valid_time", "lat"]
    values = np.arange(24.0).reshape(4, 1, 2, 3)
    coords = {"lat": [10.0, 0, -10], "lon": [0.0, 10, 20, 30], "valid_time": hours, "number": [0]}
    xr.Dataset({"v": (dims, values)}, coords).to_netcdf(tmp_path / "a.nc")
    field, values_HW = find(tmp_path / "a.nc", "v")
    assert field.keys == ("2000-01-01T00:00:00", "2000-01-01T06:00:00")
    np.testing.assert_array_equal(values_HW, values[:, 0, 0, ::-1].T)


@pytest.mark.parametrize(
    ("dims", "coords", "keys"),
    [
        (["lat", "lon"], {}, ("map",)),
        (["time", "lat", "lon"], {}, ("map[0]", "map[1]")),
        (["sample", "lat", "lon"], {}, ("map[0]", "map[1]")),
        (["time", "lat", "lon"], {"time": ["a.nc", "b.nc"]}, ("a.nc", "b.nc")),
    ],
)
def test_samples_without_a_time_go_by_name(tmp_path, dims, coords, keys):
    write(tmp_path / "map.nc", dims, coords)
    assert find(tmp_path / "map.nc", "v")[0].keys == keys


def test_undeclared_default_fill_and_infinity_are_missing(tmp_path):
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as dataset:
        for name, values in {"lat": [0, 1], "lon": [0, 1]}.items():
            dataset.createDimension(name, 2)
            dataset.createVariable(name, "f8", (name,))[:] = values
        dataset.createVariable("v", "f4", ("lat", "lon"))[0] = [1, -np.inf]
    np.testing.assert_array_equal(find(tmp_path / "a.nc", "v")[1], [[1, np.nan], [np.nan] * 2])


@pytest.mark.parametrize("kind", ["NETCDF3_CLASSIC", "NETCDF3_64BIT", "NETCDF4"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.97])
def test_truncated_file_is_named(tmp_path, kind, share):
    path = tmp_path / "a.nc"
    values = np.ones((20, 30), np.float32)
    coords = {"lat": np.arange(20.0), "lon": np.arange(30.0)}
    xr.Dataset({"v": (["lat", "lon"], values)}, coords).to_netcdf(path, format=kind)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(DataError, match=r"a\.nc: cannot be read as NetCDF .*; it is cut short"):
        find(path, "v")


def test_what_is_no_netcdf_is_named(tmp_path):
    (tmp_path / "a.nc").write_text("latitude,longitude\n1,2\n")
    with pytest.raises(DataError, match=r"a\.nc: cannot be read as NetCDF") as error:
        find(tmp_path / "a.nc", "v")
    assert "\n" not in str(error.value)
