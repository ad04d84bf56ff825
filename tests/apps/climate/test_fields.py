from __future__ import annotations

import netCDF4
import numpy as np
import pytest
import xarray as xr

from apps.climate.fields import Channel, LevelError, find_field
from apps.climate.files import open_fields
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
        ("tas_ICON.nc", "tas", r"the unstructured grid of ICON \(latitude\(i\)"),
        ("icon_atm_2d.nc", "tas", r"the unstructured grid of ICON \(clat\(ncells\)"),
        ("daily_surface_cancities_1990-1993.nc", "tas", r"at points \(lat\(location\)"),
    ],
)
def test_what_has_no_rows_and_columns_is_refused(shared_data, file, variable, found):
    with pytest.raises(DataError, match=f"{file}: variable '{variable}' is on .*{found}") as error:
        find(shared_data / "climate" / file, variable)
    assert "regrid it" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("where", ["mapping", "attribute"])
def test_healpix_is_refused_by_name(tmp_path, where):
    grid = xr.Dataset({"v": ("cell", np.zeros(48), {"grid_mapping": "crs"})})
    grid["crs"] = ((), 0, {"grid_mapping_name": "healpix"} if where == "mapping" else {})
    about = {"healpix_nside": 2} if where == "attribute" else {}
    grid.assign_attrs(about).to_netcdf(tmp_path / "h.nc")
    with pytest.raises(DataError, match=r"'v' is on the unstructured grid of HEALPix \(cell\(cell"):
        find(tmp_path / "h.nc", "v")


@pytest.mark.parametrize(
    ("file", "variable", "shape", "periodic"),
    [
        ("tos_CESM2-FV2.nc", "tos", (384, 320), True),
        ("psl_CORDEX.nc", "psl", (5, 5), False),
        ("toa_brightness_stereographic.nc", "data", (160, 256), False),
        ("wrf_cropped.nc", "T2", (26, 26), False),
    ],
)
def test_curvilinear_grids_are_read_with_their_areas(shared_data, file, variable, shape, periodic):
    found, values = find(shared_data / "climate" / file, variable)
    assert (found.grid.shape, found.grid.periodic) == (shape, periodic)
    with xr.open_dataset(shared_data / "climate" / file, decode_times=False) as dataset:
        expected = np.sort(dataset[variable].values.reshape(-1, *shape)[0].ravel())
    np.testing.assert_array_equal(np.sort(values.ravel()), expected)
    assert np.nanmedian(np.diff(found.grid.latitude, axis=0)) > 0
    assert found.grid.area_HW.shape == shape


def test_area_of_the_ocean_model_is_that_of_its_cells(shared_data):
    """Quadrilaterals between the file's own cell corners, against ours from the centres."""
    path = shared_data / "climate" / "tos_CESM2-FV2.nc"
    found, _ = find(path, "tos")
    with xr.open_dataset(path, decode_times=False) as dataset:
        lat, lon = (np.deg2rad(dataset[f"{name}_bnds"].values) for name in ("lat", "lon"))
    corner = np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], -1)
    across = np.cross(corner[..., 2, :] - corner[..., 0, :], corner[..., 3, :] - corner[..., 1, :])
    theirs, ours = found.grid.to_canonical(np.linalg.norm(across, axis=-1)), found.grid.area_HW
    ratio = (ours / theirs)[2:-2][ours[2:-2] > 0]
    assert len(ratio) > 80_000
    assert np.percentile(np.abs(ratio / np.median(ratio) - 1), 99) < 0.03


def test_radians_are_turned_to_degrees(tmp_path):
    radians = {"lat": ("lat", np.deg2rad([-10.0, 0, 10]), {"units": "radian"})}
    radians |= {"lon": ("lon", np.deg2rad([0.0, 10, 20, 30]), {"units": "radians"})}
    write(tmp_path / "a.nc", ["lat", "lon"], radians)
    found, _ = find(tmp_path / "a.nc", "v")
    np.testing.assert_allclose(found.grid.latitude, [-10, 0, 10], atol=1e-12)
    np.testing.assert_allclose(found.grid.longitude, [0, 10, 20, 30], atol=1e-5)


def test_missing_coordinates_are_refused(tmp_path):
    xr.Dataset({"v": (["y", "x"], np.ones((2, 2)))}).to_netcdf(tmp_path / "b.nc")
    with pytest.raises(DataError, match=r"no latitude and longitude, only y\(y\), x\(x\)"):
        find(tmp_path / "b.nc", "v")


def test_a_grid_that_moves_is_refused(tmp_path):
    lat = np.broadcast_to(np.arange(3.0)[:, None], (2, 3, 4)) + np.arange(2.0)[:, None, None]
    lon = np.broadcast_to(np.arange(4.0), (2, 3, 4))
    dims = ["time", "y", "x"]
    coords = {"la": (dims, lat, {"units": "degrees_north"})}
    coords |= {"lo": (dims, lon, {"units": "degrees_east"})}
    xr.Dataset({"v": (dims, np.zeros((2, 3, 4)))}, coords).to_netcdf(tmp_path / "m.nc")
    with pytest.raises(DataError, match=r"'v': la moves along time: a grid has to stay"):
        find(tmp_path / "m.nc", "v")


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


@pytest.mark.parametrize(
    ("values", "unit", "calendar"),
    [
        ([0.0, 1.0], "months since 2000-01-01", "standard"),
        ([0.0, 1.0], "days since 2000-13-01", "standard"),
        ([0.0, 1.0], "days since 2000-01-01", "lunar"),
        ([0.0, np.nan], "days since 2000-01-01", "standard"),
        ([0.0, 1e30], "days since 2000-01-01", "standard"),
    ],
)
def test_times_that_are_none_are_refused(tmp_path, values, unit, calendar):
    """Samples are told apart by time: bare numbers would match those of other years."""
    time = {"time": ("time", values, {"units": unit, "calendar": calendar})}
    write(tmp_path / "a.nc", ["time", "lat", "lon"], time)
    with pytest.raises(DataError, match=rf"a\.nc: time in '{unit}', calendar .* is no time"):
        find(tmp_path / "a.nc", "v")
