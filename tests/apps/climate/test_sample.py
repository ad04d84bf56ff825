"""The example data set: the layout of ClimateNet, atomic, repeatable, and with its statistics."""

from __future__ import annotations

import hashlib
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr

from apps.climate import sample
from apps.climate.files import DEEPCAM_CHANNELS
from apps.climate.sample import (
    SPLIT_YEARS,
    VARIABLES,
    map_time,
    season,
    simulate,
    write_sample,
)
from scadl_core.errors import ConfigError, PlaceError

SMALL = {"train_maps": 3, "test_maps": 2, "latitudes": 25, "longitudes": 36}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sample") / "deep" / "set"
    write_sample(path, **SMALL)
    return path


def test_files_are_named_and_laid_out_as_climatenet(written: Path) -> None:
    names = [str(file.relative_to(written)) for file in sorted(written.rglob("*.nc"))]
    assert names == [
        "test/data-2011-01-01-00-1.nc",
        "test/data-2011-01-28-05-1.nc",
        "train/data-1996-01-01-00-1.nc",
        "train/data-1996-01-28-05-1.nc",
        "train/data-1996-02-24-10-1.nc",
    ]
    with xr.open_dataset(written / names[0]) as dataset:
        assert dict(dataset.sizes) == {"time": 1, "lat": 25, "lon": 36}
        assert dataset.time.item() == "data-2011-01-01-00-1.nc"
        np.testing.assert_array_equal(dataset.lat, np.linspace(-90, 90, 25))
        np.testing.assert_array_equal(dataset.lon, np.arange(0, 360, 10))
        assert {name: str(dataset[name].dtype) for name in dataset.data_vars} == {
            **dict.fromkeys(("TMQ", "U850", "V850", "PSL", "T500"), "float32"),
            "LABELS": "int64",
        }
        assert all(dataset[name].dims == ("time", "lat", "lon") for name in dataset.data_vars)
        assert dataset.PSL.attrs == {"description": "Sea level pressure", "units": "Pa"}
        assert set(np.unique(dataset.LABELS)) <= {0, 1, 2}


def test_an_existing_folder_is_left_alone(tmp_path: Path) -> None:
    write_sample(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_of_a_set_that_could_not_be_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(file: Path, *_: object) -> None:
        if file.parent.name == "test":
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(sample, "write_netcdf", full_disk)
    with pytest.raises(PlaceError, match="No space left"):
        write_sample(tmp_path / "set", **SMALL)
    assert list(tmp_path.iterdir()) == []


def test_a_map_depends_on_its_number_and_not_on_the_count(written: Path, tmp_path: Path) -> None:
    write_sample(tmp_path / "more", **SMALL | {"train_maps": 4, "test_maps": 1})
    for file in ("train/data-1996-02-24-10-1.nc", "test/data-2011-01-01-00-1.nc"):
        with (
            xr.open_dataset(written / file) as few,
            xr.open_dataset(tmp_path / "more" / file) as many,
        ):
            xr.testing.assert_identical(few, many)


def test_seed_split_and_number_each_make_another_map() -> None:
    keys = ([0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1])
    maps = [simulate(np.random.default_rng(key), (25, 36), 0.0).pressure_Pa for key in keys]
    for i, one in enumerate(maps):
        assert all(
            abs(np.corrcoef(one.ravel() - maps[0].mean(), other.ravel())[0, 1]) < 0.99
            for other in maps[:i]
        )


@pytest.mark.parametrize("split", SPLIT_YEARS)
def test_times_are_in_the_years_of_the_split_and_never_twice(split: str) -> None:
    times = [map_time(split, number) for number in range(2000)]
    assert len(set(times)) == 2000
    assert {time.year for time in times} == set(
        range(SPLIT_YEARS[split][0], SPLIT_YEARS[split][1] + 1)
    )
    assert np.mean([season(time) for time in times]) == pytest.approx(0.0, abs=0.02)


def test_statistics_are_those_of_climatenet() -> None:
    """Mean and standard deviation from its configuration, class fractions from its test split."""
    maps = [
        simulate(np.random.default_rng([0, 0, n]), (96, 144), season(map_time("train", n)))
        for n in range(16)
    ]
    label = np.stack([weather.label for weather in maps])
    assert (label == 1).mean() == pytest.approx(0.0055, abs=0.0015)
    assert (label == 2).mean() == pytest.approx(0.056, abs=0.012)
    expected = {
        "moisture_kg_m2": (19.2, 15.8),
        "east_m_s": (1.55, 8.30),
        "north_m_s": (0.25, 6.23),
        "pressure_Pa": (100814, 1461),
    }
    for field, (mean, spread) in expected.items():
        values = np.stack([getattr(weather, field) for weather in maps])
        assert values.dtype == np.float32
        assert values.mean() == pytest.approx(mean, abs=0.3 * spread)
        assert values.std() == pytest.approx(spread, rel=0.25)


def test_cyclone_radius_bounds_the_label() -> None:
    areas = [
        (simulate(np.random.default_rng(3), (96, 144), 0.0, radius_km).label == 1).sum()
        for radius_km in (250.0, 400.0, 600.0)
    ]
    assert 0 < areas[0] < areas[1] <= areas[2]


def test_the_older_fields_are_the_bytes_that_published_scores_rest_on() -> None:
    """Hashes from before there was a temperature."""
    weather = simulate(np.random.default_rng([0, 0, 0]), (96, 144), 0.3)
    fields = ("moisture_kg_m2", "east_m_s", "north_m_s", "pressure_Pa", "label")
    found = [hashlib.sha256(getattr(weather, it).tobytes()).hexdigest()[:16] for it in fields]
    assert found == [
        "f288f62ea2a2d150",
        "6d637d313584d15e",
        "722a4a8cb3119407",
        "9f20e1e30b33ecae",
        "887ce5dd2db05947",
    ]


def test_deepcam_has_the_same_maps_in_its_own_layout(written: Path, tmp_path: Path) -> None:
    write_sample(tmp_path / "set", **SMALL, layout="deepcam")
    names = sorted(str(it.relative_to(tmp_path / "set")) for it in tmp_path.rglob("*.h5"))
    assert names[0] == "stats.h5"
    assert [name.partition("/")[0] for name in names[1:]] == ["train"] * 3 + ["validation"] * 2
    train = []
    for name in names[1:]:
        twin = name.replace(".h5", ".nc").replace("validation", "test")
        with netCDF4.Dataset(tmp_path / "set" / name) as deepcam:
            data_HWC = deepcam["climate/data"][:].filled()
            label_HW = deepcam["climate/labels_0"][:]
        with xr.open_dataset(written / twin) as climatenet:
            for channel, values_HW in zip(
                DEEPCAM_CHANNELS, np.moveaxis(data_HWC, -1, 0), strict=True
            ):
                known = climatenet[channel][0] if channel in VARIABLES else np.float32(np.nan)
                np.testing.assert_array_equal(values_HW, known)
            np.testing.assert_array_equal(label_HW, climatenet.LABELS[0])
        train += [data_HWC] * name.startswith("train")
    stack = np.stack(train).astype(np.float64)[
        ..., [DEEPCAM_CHANNELS.index(it) for it in VARIABLES]
    ]
    expected = {"mean": stack.mean((0, 1, 2)), "sqmean": (stack**2).mean((0, 1, 2))}
    expected |= {"minval": stack.min((0, 1, 2)), "maxval": stack.max((0, 1, 2))}
    with netCDF4.Dataset(tmp_path / "set" / "stats.h5") as stats:
        assert int(stats["climate/count"][...]) == 3
        for name, values in expected.items():
            found = stats[f"climate/{name}"][:][[DEEPCAM_CHANNELS.index(it) for it in VARIABLES]]
            np.testing.assert_allclose(found, values, rtol=1e-6)


def test_an_unknown_layout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"layout: got 'depcam'; did you mean 'deepcam'\?"):
        write_sample(tmp_path / "set", layout="depcam")
