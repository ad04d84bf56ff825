from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from apps.climate.data import ClimateData
from apps.climate.splits import DEFAULT
from scadl_core.errors import DataError


def test_real_levels_become_channels(shared_data):
    path = shared_data / "climate" / "era5_pl_t_z_500_850_test4.nc"
    report, values = ClimateData.propose(path)
    assert values["inputs"] == ["t@500hPa", "t@850hPa", "z@500hPa", "z@850hPa"]
    assert (values["target"], values["classes"]) == ("???", "???")
    assert report.warnings[0].startswith("no variable looks like labels")
    assert ClimateData(values["path"], values["inputs"]).facts()["mean_C"][2] > 4e4


def test_climatenet_layout_is_trainable_as_proposed(tmp_path):
    rng = np.random.default_rng(0)
    coords = {"lat": np.linspace(-90, 90, 5), "lon": np.arange(0, 360, 45.0)}
    for folder in ("train", "test"):
        (tmp_path / folder).mkdir()
        for number in range(3):
            dims = ["time", "lat", "lon"]
            values = {"TMQ": rng.normal(size=(1, 5, 8)), "LABELS": rng.integers(0, 3, (1, 5, 8))}
            name = f"data-{folder}-{number}.nc"
            data = xr.Dataset({k: (dims, v) for k, v in values.items()}, coords | {"time": [name]})
            data.to_netcdf(tmp_path / folder / name)
    _, values = ClimateData.propose(tmp_path)
    assert values["inputs"] == ["TMQ"]
    assert (values["target"], values["split"]) == ("LABELS", DEFAULT)
    assert values["classes"] == ["background", "tropical_cyclone", "atmospheric_river"]
    assert len(ClimateData(**values).samples("val")) == 1


def test_flags_are_labels(tmp_path):
    flags = {"flag_values": np.array([0, 1], "i1"), "flag_meanings": "clear cloudy"}
    fields = {
        "t": (["lat", "lon"], np.ones((2, 2))),
        "c": (["lat", "lon"], np.eye(2, dtype="i1"), flags),
    }
    xr.Dataset(fields, {"lat": [0.0, 1], "lon": [0.0, 1]}).to_netcdf(tmp_path / "a.nc")
    _, values = ClimateData.propose(tmp_path)
    assert (values["inputs"], values["target"]) == (["t"], "c")
    assert values["classes"] == ["clear", "cloudy"]


def test_unsupported_grid_is_refused(shared_data):
    with pytest.raises(DataError, match=r"tas_ICON.nc: variable 'tas' is on the unstructured grid"):
        ClimateData.propose(shared_data / "climate" / "tas_ICON.nc")
