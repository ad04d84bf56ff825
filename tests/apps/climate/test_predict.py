from __future__ import annotations

import csv
from types import SimpleNamespace

import netCDF4
import numpy as np
import pytest
import xarray as xr
from torch import nn

from apps.climate.predict import predict_files
from scadl_core.errors import DataError, ScadlError

CLASSES = ["no event", "event"]
ERA5 = ["t@500hPa", "t@850hPa", "z@500hPa", "z@850hPa"]


def predict(image_CHW, periodic, tiles=None):
    """Looks at neighbours to the east and the north, so that it notices a turned or flipped map."""
    values_HW = np.nan_to_num(image_CHW).sum(0)
    slope_HW = np.roll(values_HW, -1, 1) - values_HW + 2 * np.gradient(values_HW, axis=0)
    event_HW = 1 / (1 + np.exp(np.clip(-slope_HW / 100, -50, 50)))
    return np.stack([1 - event_HW, event_HW]).astype(np.float32)


def apply(path, output, inputs, predict=predict, unit="", **changes):
    facts = {"inputs": inputs, "classes": CLASSES, "units": [unit] * len(inputs)}
    facts |= {"mean_C": [0.0] * len(inputs), "std_C": [1e9] * len(inputs)}
    task = SimpleNamespace(facts=facts, network=nn.Identity(), probabilities=predict)
    run = {"versions": {"scadl": "1.2"}, "git": {}, "time": "noon", "command": "scadl train"}
    return predict_files(task, path, output, run, **changes)


@pytest.mark.parametrize(
    ("files", "inputs"),
    [
        (["era5_pl_t_z_500_850_test4.nc"], ERA5),
        (["uwnd_mean.nc", "vwnd_mean.nc"], ["uwnd", "vwnd"]),
        (["tas_day_MIROC6.nc"], ["tas"]),
        (["ostia_monthly.nc"], ["surface_temperature"]),
        (["mrsos_HadGEM2.nc"], ["mrsos"]),
    ],
)
def test_real_coordinates_come_back_as_they_were(shared_data, tmp_path, files, inputs):
    paths = [shared_data / "climate" / name for name in files]
    written = apply(paths, tmp_path / "out.nc", inputs)
    with netCDF4.Dataset(paths[0]) as given, netCDF4.Dataset(written) as found:
        first = given[inputs[0].partition("@")[0]]
        dimensions = [name for name in first.dimensions if name != "level"]
        assert list(found["event_class"].dimensions) == dimensions
        names = [*dimensions, *(f"{name}_bnds" for name in dimensions), "height", "air_pressure"]
        for name in (name for name in names if name in given.variables):
            for dataset in (given, found):
                dataset.set_auto_mask(False)
            np.testing.assert_array_equal(found[name][...], given[name][...])
            assert found[name].dtype == given[name].dtype
            for attribute in set(given[name].ncattrs()) - {"actual_range"}:
                assert found[name].getncattr(attribute) == given[name].getncattr(attribute)
        if "grid_mapping" in first.ncattrs():
            assert found["event_class"].grid_mapping in found.variables


def test_flags_and_attributes(shared_data, tmp_path):
    written = apply(shared_data / "climate" / "mrsos_HadGEM2.nc", tmp_path / "out.nc", ["mrsos"])
    with netCDF4.Dataset(written) as dataset:
        classes = dataset["event_class"]
        assert classes.dtype == classes.flag_values.dtype == np.int8
        assert (classes.flag_values.tolist(), classes._FillValue) == ([0, 1], -1)
        assert classes.flag_meanings == "no_event event"
        assert classes.ancillary_variables == "probability_no_event probability_event"
        assert (dataset.Conventions, dataset.scadl_version) == ("CF-1.11", "1.2")
        assert (dataset.scadl_git_commit, dataset.scadl_model_trained) == ("unknown", "noon")
        assert dataset.scadl_command == "scadl train"
        assert dataset["probability_event"].units == "1"
        masked = np.ma.getmaskarray(classes[0])
    with xr.open_dataset(shared_data / "climate" / "mrsos_HadGEM2.nc") as given:
        np.testing.assert_array_equal(masked, given.mrsos[0].isnull())
    assert [file.name for file in tmp_path.iterdir()] == ["out.nc"]


def test_values_are_those_of_the_canonical_map(shared_data, tmp_path):
    path = shared_data / "climate" / "tas_day_MIROC6.nc"  # canonical as it is
    written = apply(path, tmp_path / "out.nc", ["tas"], probabilities=False)
    with xr.open_dataset(path) as given, xr.open_dataset(written) as found:
        expected = predict(given.tas.values.astype(np.float32), True, None).argmax(0)
        np.testing.assert_array_equal(found.event_class[0], expected)
        assert "probability_event" not in found


@pytest.mark.parametrize("change", ["roll", "flip", "both", "west"])
def test_turned_input_gives_the_same_on_its_own_coordinates(shared_data, tmp_path, change):
    with xr.open_dataset(shared_data / "climate" / "uwnd_mean.nc") as dataset:
        original = dataset.isel(time=slice(2)).load()
    turned = original
    if change in ("roll", "both"):
        turned = turned.roll(longitude=31, roll_coords=True)
    if change in ("flip", "both"):
        turned = turned.isel(latitude=slice(None, None, -1))
    if change == "west":
        longitude = (turned.longitude.values + 180) % 360 - 180
        turned = turned.assign_coords(longitude=("longitude", longitude, turned.longitude.attrs))
    results = []
    for name, dataset in {"a.nc": original, "b.nc": turned}.items():
        dataset.to_netcdf(tmp_path / name)
        written = apply(tmp_path / name, tmp_path / f"out-{name}", ["uwnd"])
        with xr.open_dataset(written) as found:
            np.testing.assert_array_equal(found.longitude, dataset.longitude)
            np.testing.assert_array_equal(found.latitude, dataset.latitude)
            found = found.load().assign_coords(longitude=found.longitude % 360)
            results.append(found.sortby(["latitude", "longitude"]))
    for variable in ("event_class", "probability_event"):
        np.testing.assert_array_equal(results[0][variable], results[1][variable])


def grid_file(path, time=None, **coords):
    coords |= {"lat": [1.0, 0], "lon": [0.0, 1, 2]} | ({"time": time} if time else {})
    dims = ["time"] * bool(time) + ["lat", "lon"]
    shape = ([len(time[1])] if time else []) + [2, 3]
    values = np.arange(np.prod(shape), dtype="f4").reshape(shape)
    xr.Dataset({"v": (dims, values)}, coords).to_netcdf(path)


def test_times_of_other_units_are_converted(tmp_path):
    grid_file(tmp_path / "a.nc", ("time", [0, 1], {"units": "days since 2000-01-01"}))
    grid_file(tmp_path / "b.nc", ("time", [6, 30], {"units": "hours since 2000-02-01"}))
    written = apply(tmp_path / "?.nc", tmp_path / "out.nc", ["v"])
    with netCDF4.Dataset(written) as dataset:
        assert dataset["time"].units == "days since 2000-01-01"
        np.testing.assert_allclose(dataset["time"][:], [0, 1, 31.25, 32.25], rtol=0, atol=1e-9)


def test_samples_without_a_time(tmp_path):
    grid_file(tmp_path / "a.nc")
    with xr.open_dataset(apply(tmp_path / "a.nc", tmp_path / "one.nc", ["v"])) as found:
        assert found.event_class.dims == ("lat", "lon")
    grid_file(tmp_path / "b.nc")
    with xr.open_dataset(apply(tmp_path / "?.nc", tmp_path / "two.nc", ["v"])) as found:
        assert found.event_class.dims == ("sample", "lat", "lon")
        assert found.sample_name.values.tolist() == ["a", "b"]
    grid_file(tmp_path / "c.nc", ("time", ["data-1.nc", "data-2.nc"]))
    with xr.open_dataset(apply(tmp_path / "c.nc", tmp_path / "text.nc", ["v"])) as found:
        assert found.event_class.dims == ("sample", "lat", "lon")
        assert found.event_class.sample_name.values.tolist() == ["data-1.nc", "data-2.nc"]
        assert "time" not in found.variables  # CF has no text there


def test_constant_first_channel_leaves_time_to_the_others(tmp_path):
    grid_file(tmp_path / "a.nc", ("time", [0, 6], {"units": "hours since 2000-01-01"}))
    with xr.open_dataset(tmp_path / "a.nc") as dataset:
        dataset.v[0].drop_vars("time").rename("mask").to_netcdf(tmp_path / "mask.nc")
    files = [tmp_path / "mask.nc", tmp_path / "a.nc"]
    with xr.open_dataset(apply(files, tmp_path / "out.nc", ["mask", "v"])) as found:
        assert found.event_class.sizes["time"] == 2


def test_failure_leaves_nothing_and_inputs_are_safe(tmp_path):
    grid_file(tmp_path / "a.nc")
    with pytest.raises(DataError, match=r"output=.*a\.nc is an input as well"):
        apply(tmp_path / "a.nc", tmp_path / "a.nc", ["v"])

    def fail(image_CHW, periodic, tiles):
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        apply(tmp_path / "a.nc", tmp_path / "out.nc", ["v"], predict=fail)
    assert [file.name for file in tmp_path.iterdir()] == ["a.nc"]


def test_in_a_folder_it_is_named_after_the_first_input(tmp_path):
    (tmp_path / "out").mkdir()
    grid_file(tmp_path / "a.nc")
    grid_file(tmp_path / "b.nc")
    assert apply(tmp_path / "?.nc", tmp_path / "out", ["v"]) == tmp_path / "out" / "a_classes.nc"


@pytest.mark.parametrize(
    ("name", "inputs", "rows", "coordinates"),
    [
        ("tos_CESM2-FV2.nc", ["tos"], ("nlat", "nlon"), ["lat", "lon", "nlat", "nlon"]),
        ("psl_CORDEX.nc", ["psl"], ("rlat", "rlon"), ["lat", "lon", "rlat", "rlon"]),
        ("toa_brightness_stereographic.nc", ["data"], ("y", "x"), ["lat", "lon", "y", "x"]),
        ("wrf_cropped.nc", ["T2"], ("south_north", "west_east"), ["XLAT", "XLONG"]),
    ],
)
def test_curvilinear_grids_come_back_as_they_were(
    shared_data, tmp_path, name, inputs, rows, coordinates
):
    path = shared_data / "climate" / name
    written = apply(path, tmp_path / "out.nc", inputs)
    with (
        xr.open_dataset(path, decode_times=False) as given,
        xr.open_dataset(written, decode_times=False) as found,
    ):
        assert found["event_class"].dims[-2:] == rows
        for coordinate in coordinates:
            np.testing.assert_array_equal(found[coordinate], given[coordinate])
            if given[coordinate].attrs.get("units") == "1":  # a number of a row has no projection
                assert "standard_name" not in found[coordinate].attrs
        missing = np.isnan(given[inputs[0]].values).reshape(found["event_class"].shape)
        np.testing.assert_array_equal(np.isnan(found["event_class"].values), missing)
        if mapping := given[inputs[0]].attrs.get("grid_mapping"):
            assert found[mapping].attrs == given[mapping].attrs


def test_radians_come_back_as_degrees(tmp_path):
    degrees = {"lat": [-20.0, 0, 20], "lon": [0.0, 90, 180, 270]}
    fields = {"v": (["lat", "lon"], np.arange(12.0).reshape(3, 4))}
    xr.Dataset(fields, degrees).to_netcdf(tmp_path / "degrees.nc")
    radians = {name: (name, np.deg2rad(it), {"units": "rad"}) for name, it in degrees.items()}
    xr.Dataset(fields, radians).to_netcdf(tmp_path / "radians.nc")
    one, other = (
        xr.load_dataset(apply(tmp_path / f"{name}.nc", tmp_path / f"{name}_out.nc", ["v"]))
        for name in ("degrees", "radians")
    )
    assert other["lat"].attrs["units"] == "degrees_north"
    xr.testing.assert_allclose(one.drop_attrs(), other.drop_attrs())


def test_another_unit_than_in_training_is_refused(shared_data, tmp_path):
    path = shared_data / "climate" / "tos_CESM2-FV2.nc"
    expected = r"tos_CESM2-FV2.nc: tos is in degC, the model was trained with K; convert the file"
    with pytest.raises(DataError, match=expected):
        apply(path, tmp_path / "out.nc", ["tos"], unit="K")
    apply(path, tmp_path / "out.nc", ["tos"], unit="Celsius")


@pytest.mark.parametrize(
    ("coordinate", "output", "expected"),
    [
        ("event_class", "out.nc", "a.nc: has a coordinate named event_class, as predictions are"),
        ("height", "out.zarr", r"output=.*out.zarr: predictions are NetCDF; let the name end in"),
    ],
)
def test_what_cannot_be_written(tmp_path, coordinate, output, expected):
    coords = {"lat": [0.0, 10, 20], "lon": [0.0, 10, 20, 30], coordinate: 2.0}
    fields = {"v": (["lat", "lon"], np.zeros((3, 4), "f4"))}
    xr.Dataset(fields, coords).to_netcdf(tmp_path / "a.nc")
    with pytest.raises(ScadlError, match=expected):
        apply(tmp_path / "a.nc", tmp_path / output, ["v"])
    assert [it.name for it in tmp_path.iterdir()] == ["a.nc"]


def test_events_are_written_beside_the_prediction(tmp_path):
    """Two steps; in the second an event across the date line."""
    values = np.zeros((2, 6, 12), "f4")
    values[0, 2, 3:5], values[1, 4, [0, 11]], values[1, 4, 11] = 5, 5, 9
    time = ("time", [0, 6], {"units": "hours since 2000-02-27 20:00", "calendar": "360_day"})
    coords = {"lat": np.linspace(-75, 75, 6), "lon": np.arange(0, 360, 30.0), "time": time}
    fields = {"v": (["time", "lat", "lon"], values, {"units": "m s-1"})}
    xr.Dataset(fields, coords).to_netcdf(tmp_path / "a.nc")

    def above(image_CHW, periodic, tiles):
        return np.stack([image_CHW[0] < 4, image_CHW[0] >= 4]).astype(np.float32)

    apply(tmp_path / "a.nc", tmp_path / "out.nc", ["v"], predict=above, events=True)
    assert sorted(it.name for it in tmp_path.iterdir()) == ["a.nc", "out.nc", "out_events.csv"]
    first, second = csv.DictReader((tmp_path / "out_events.csv").read_text().splitlines())
    assert (first["sample"], first["class"]) == ("2000-02-27T20:00:00", "event")
    assert second["sample"] == "2000-02-28T02:00:00"
    assert first["longitude_degree_east"] == "105"
    assert second["longitude_degree_east"] == "345"
    assert (second["max_v_m_s-1"], second["max_v_longitude_degree_east"]) == ("9", "330")
    assert float(first["latitude_degree_north"]) == pytest.approx(-15.5, abs=0.1)


@pytest.mark.parametrize(
    ("value", "said"),
    [(1013.0, "has a mean of 1013, in training it had 1.01e+05 +- 1.46e+03"), (np.nan, "missing")],
)
def test_strange_values_are_said(tmp_path, capsys, value, said):
    """Pressure in hPa without a unit, for a model of Pa; and nothing at all."""
    coords = {"lat": [0.0, 10, 20], "lon": [0.0, 10, 20, 30]}
    for name, field in (("odd", value), ("usual", 100_800.0)):
        fields = {"v": (["lat", "lon"], np.full((3, 4), field, "f4"))}
        xr.Dataset(fields, coords).to_netcdf(tmp_path / f"{name}.nc")
    facts = {"inputs": ["v"], "classes": CLASSES, "units": [""]}
    facts |= {"mean_C": [101_000.0], "std_C": [1461.0]}
    task = SimpleNamespace(facts=facts, network=nn.Identity(), probabilities=predict)
    run = {"versions": {"scadl": "1.2"}, "git": {}, "time": "noon", "command": "scadl train"}
    predict_files(task, tmp_path / "usual.nc", tmp_path / "a_out.nc", run)
    assert capsys.readouterr().err == ""
    predict_files(task, tmp_path / "odd.nc", tmp_path / "b_out.nc", run)
    assert f"warning: v of odd {said}" in capsys.readouterr().err.replace("is missing", "missing")
