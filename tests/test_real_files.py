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
MOST_STEPS = 24  # to train on, and to predict
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


REFUSED = {
    "daily_surface_cancities_1990-1993.nc": r"variable '\w+' is on an unstructured grid or at poi",
    "icon_atm_2d.nc": r"variable '\w+' is on the unstructured grid of ICON",
    "tas_ICON.nc": r"variable 'tas' is on the unstructured grid of ICON",
}
USED = {  # the shape of its predictions; of a long series, of its first steps
    "A1B_north_america.nc": (24, 37, 49),
    "access_native.nc": (1, 145, 192),
    "era5_2t_1.nc": (1, 9, 18),
    "era5_2t_2.nc": (1, 9, 18),
    "era5_pl_t_z_500_850_test4.nc": (1, 181, 360),
    "mrsos_HadGEM2.nc": (1, 145, 192),
    "ostia_monthly.nc": (24, 18, 432),
    "psl_CORDEX.nc": (24, 5, 5),
    "tas_FGOALS-g3.nc": (1, 80, 180),
    "tas_cmip3_giss_noleap.nc": (24, 6, 5),
    "tas_day_CESM2-WACCM.nc": (24, 2, 3),
    "tas_day_MIROC6.nc": (1, 128, 256),
    "toa_brightness_stereographic.nc": (160, 256),
    "tos_CESM2-FV2.nc": (1, 384, 320),
    "uwnd_mean.nc": (12, 73, 144),
    "vwnd_mean.nc": (12, 73, 144),
    "wrf_cropped.nc": (4, 26, 26),
}


def test_every_file_is_listed(shared_data: Path) -> None:
    assert {path.name for path in (shared_data / "climate").glob("*.nc")} == {*REFUSED, *USED}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_used_is_refused(scadl: Scadl, shared_data: Path, name: str) -> None:
    path = shared_data / "climate" / name
    outcome = scadl("check", "climate", "data=netcdf", f"data.path={path}")
    assert outcome.status == 2
    assert re.match(f"scadl: {path}: {REFUSED[name]}", outcome.err)
    assert "regrid it" in outcome.err
    assert outcome.err.count("\n") == 1


def series(path: Path, folder: Path) -> Path:
    """The file itself if it has three samples or some more; of a longer one the first; else a
    folder of it at six times.
    """
    with xr.open_dataset(path, decode_cf=False) as dataset:
        times = [it for it, size in dataset.sizes.items() if str(it).lower() == "time" and size > 2]
        if times and dataset.sizes[times[0]] <= MOST_STEPS:
            return path
        folder.mkdir()
        if times:
            first = dataset.isel({times[0]: slice(MOST_STEPS)})
            first.to_netcdf(folder / path.name, unlimited_dims=())
            return folder
        time = "time" if "time" in dataset.variables else None
        for step in range(6):
            later = dataset.copy()
            if time is not None:
                later[time] = dataset[time].copy(data=dataset[time].values + 31.0 * step)
            later.to_netcdf(folder / f"{path.stem}-{step}.nc")
    return folder


@pytest.mark.parametrize("name", USED)
def test_checked_trained_on_and_predicted(
    scadl: Scadl, workplace: Path, shared_data: Path, name: str
) -> None:
    """With the labels that the check proposes where the file has none."""
    path = shared_data / "climate" / name
    out = " ".join(done(scadl("check", "climate", "data=netcdf", f"data.path={path}")).split())
    labels = re.search(r"such as (data.target=\S+) (data.thresholds=\S+) (data.classes=\S+)", out)
    assert labels is not None
    page = next(Path("scadl_configs/data").glob("*.yaml"))
    samples = series(path, workplace / "maps")
    source = samples if USED[name][0] == MOST_STEPS else path
    done(
        scadl(
            *("train", "climate", "--config-dir", "scadl_configs", f"data={page.stem}"),
            *(f"data.path={samples}", *labels.groups(), *QUICK),
            *("data.split={by: time, val: 0.25, test: 0.25, gap: 0}", "trainer.max_epochs=1"),
            *("loader.batch_size=64", "model.depth=1", "run.dir=run", "figures.num_samples=1"),
        )
    )
    done(scadl("predict", "climate", "run.dir=run", f"input={source}", "output=p.nc"))
    with xr.open_dataset("p.nc", decode_times=False) as prediction:
        assert prediction["event_class"].shape == USED[name]
        total = prediction["probability_usual"] + prediction["probability_high"]
        np.testing.assert_allclose(total.where(total.notnull(), 1.0), 1.0, atol=1e-5)
        assert bool(total.notnull().any())
