"""The data report: fills, ranges, what differs across files, missing steps."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from apps.climate.data import ClimateData

LAT, LON = np.linspace(-60, 60, 5), np.arange(0, 360, 45.0)


def write(path, days, calendar="standard", mean=280.0, fill=None, flip=False, **packing):
    units = {"units": "days since 2000-01-01", "calendar": calendar}
    time = ("time", np.asarray(days, float), units)
    values = np.random.default_rng(len(days)).normal(mean, 5, (len(days), 5, 8))
    if fill:
        values[:, 0, 0] = fill
    fields = {"t": (["time", "lat", "lon"], values, {"units": "K"})}
    found = xr.Dataset(fields, {"time": time, "lat": LAT, "lon": LON})
    found = found.isel(lat=slice(None, None, -1)) if flip else found
    found.to_netcdf(path, encoding={"t": packing} if packing else {})


def report(path):
    data = ClimateData(path, ["t"], "t", ["usual", "high"], [285.0], split={"by": "time", "gap": 0})
    return data.report()


def test_steps_that_are_missing_are_named(tmp_path):
    days = [0, 1, 2, 3, 6, 7, 9, 10]
    write(tmp_path / "a.nc", days, calendar="360_day")
    found = report(tmp_path)
    assert found.facts["time"] == "2000-01-01T00:00:00 to 2000-01-11T00:00:00 (360_day calendar)"
    expected = (
        "2 times the next step comes late (usual: 24 h), as between 2000-01-04T00:00:00 and "
        "2000-01-07T00:00:00: steps are missing"
    )
    assert expected in found.warnings


def test_months_are_no_gaps(tmp_path):
    write(tmp_path / "a.nc", np.cumsum([0, 31, 29, 31, 30, 31, 30, 31, 31, 30]))
    assert not [it for it in report(tmp_path).warnings if "steps are missing" in it]


@pytest.mark.parametrize(("mean", "fill"), [(280.0, -9999.0), (8.0, None)])
def test_values_that_cannot_be_are_named(tmp_path, mean, fill):
    write(tmp_path / "a.nc", range(12), mean=mean, fill=fill)
    (warning,) = [it for it in report(tmp_path).warnings if "outside the usual" in it]
    assert warning.startswith("t has values of ")
    assert warning.endswith("100..400: an undeclared fill value, or another unit")


def test_what_differs_across_files_is_said(tmp_path):
    packing = {"dtype": "i2", "add_offset": 280.0, "_FillValue": -32768}
    write(tmp_path / "a.nc", range(6), **packing, scale_factor=0.01)
    write(tmp_path / "b.nc", range(6, 12), **packing, scale_factor=0.02, flip=True)
    found = report(tmp_path)
    assert found.facts["differs across files"] == "t: scale_factor, order of latitudes"
    assert found.tables[0].rows[0][-1] == "-32768"
