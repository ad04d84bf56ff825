"""Real files through the command line: check, train and predict; and what a rotated file gives."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

Scadl = Callable[..., Any]
QUICK = (
    "trainer.max_epochs=2",
    "trainer.accelerator=cpu",
    "model.width=4",
    "figures.num_samples=1",
)


def done(outcome: Any) -> str:
    assert outcome.status == 0, outcome.err
    return str(outcome.out)


def assert_same_coordinates(prediction: xr.Dataset, source: xr.Dataset, *names: str) -> None:
    for name in names:
        np.testing.assert_array_equal(prediction[name].values, source[name].values)


def turned(path: Path, folder: Path, columns: int, flip: bool) -> Path:
    """The file with its longitudes rolled and its latitudes perhaps flipped, coordinates along."""
    with xr.open_dataset(path, decode_times=False) as dataset:
        names = {str(dataset[n].dims[0]): n for n in ("latitude", "longitude")}
        rolled = dataset.load().roll({names["longitude"]: columns}, roll_coords=True)
        rolled = rolled.isel({names["latitude"]: slice(None, None, -1)}) if flip else rolled
        target = folder / path.name
        rolled.drop_attrs(deep=False).to_netcdf(target)
    return target


def test_a_pair_of_files_labelled_by_a_threshold(
    scadl: Scadl, workplace: Path, shared_data: Path
) -> None:
    pair = [shared_data / "climate" / name for name in ("uwnd_mean.nc", "vwnd_mean.nc")]
    path = f"data.path=[{pair[0]},{pair[1]}]"

    out = done(scadl("check", "climate", "experiment=jet_stream", path))
    assert "73 x 144" in out
    assert "uwnd" in out
    command = re.search(r"train on it: scadl (.*)", out)
    assert command is not None
    words = [*command[1].split(), "loader.batch_size=4", *QUICK, "run.dir=run"]
    done(scadl(*words))
    done(scadl("predict", "climate", "run.dir=run", f"input=[{pair[0]},{pair[1]}]", "output=p.nc"))
    with xr.open_dataset("p.nc") as prediction, xr.open_dataset(pair[0]) as source:
        assert prediction["event_class"].shape == source["uwnd"].shape == (12, 73, 144)
        assert prediction["event_class"].attrs["flag_meanings"] == "calm jet"
        assert_same_coordinates(prediction, source, "time", "latitude", "longitude")

    for columns, flip in ((37, False), (0, True), (101, True)):
        folder = workplace / f"{columns}{flip}"
        folder.mkdir()
        files = [turned(file, folder, columns, flip) for file in pair]
        done(scadl("predict", "climate", "run.dir=run", f"input={folder}/*.nc", "output=q.nc"))
        with xr.open_dataset("p.nc") as one, xr.open_dataset("q.nc") as other:
            with xr.open_dataset(files[0], decode_times=False) as source:
                assert_same_coordinates(other, source, "latitude", "longitude")
            other = other.sel(latitude=one["latitude"], longitude=one["longitude"])
            for name in ("probability_calm", "probability_jet"):
                np.testing.assert_allclose(other[name], one[name], rtol=0, atol=1e-5)


def test_levels_of_a_packed_file(scadl: Scadl, workplace: Path, shared_data: Path) -> None:
    """ERA5 on pressure levels: one time step, so the training set is the map turned around."""
    era5 = shared_data / "climate" / "era5_pl_t_z_500_850_test4.nc"
    out = done(scadl("check", "climate", "data=netcdf", f"data.path={era5}"))
    assert "t@500hPa" in out
    assert "181 x 360" in out

    (workplace / "maps").mkdir()
    with xr.open_dataset(era5) as dataset:
        small = dataset.isel(latitude=slice(0, None, 4), longitude=slice(0, None, 5)).load()
    for day in range(8):
        later = small.assign_coords(time=small["time"] + np.timedelta64(day, "D"))
        later.assign(t=later["t"].roll(longitude=9 * day)).to_netcdf(f"maps/{day}.nc")
    inputs = "data.inputs=[t@500hPa,t@850hPa,z@500hPa,z@850hPa]"
    labels = ("data.target=t@850hPa", "data.thresholds=[280.0]", "data.classes=[cold,warm]")
    split = ("data.split.val=0.25", "data.split.test=0.25", "loader.batch_size=2")
    done(
        scadl(
            *("train", "climate", "data=netcdf", "data.path=maps", inputs, *labels, *split),
            *(*QUICK, "run.dir=run"),
        )
    )
    done(scadl("predict", "climate", "run.dir=run", f"input={era5}", "output=p.nc"))
    with xr.open_dataset("p.nc") as prediction, xr.open_dataset(era5) as source:
        assert prediction["event_class"].shape == (1, 181, 360)
        assert_same_coordinates(prediction, source, "time", "latitude", "longitude")
        total = prediction["probability_cold"] + prediction["probability_warm"]
        np.testing.assert_allclose(total, 1.0, atol=1e-5)


@pytest.mark.parametrize("name", ["tas_ICON.nc", "tos_CESM2-FV2.nc", "psl_CORDEX.nc"])
def test_grids_that_are_no_latitude_longitude_grid_are_refused(
    scadl: Scadl, shared_data: Path, name: str
) -> None:
    outcome = scadl(
        "check", "climate", "data=netcdf", f"data.path={shared_data / 'climate' / name}"
    )
    assert outcome.status == 2
    assert outcome.err.startswith(f"scadl: {shared_data / 'climate' / name}: variable")
    assert outcome.err.count("\n") == 1
