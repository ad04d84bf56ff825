from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr

from apps.climate.data import ClimateData
from scadl_core.errors import ConfigError, DataError

CLASSES = ["background", "tropical_cyclone", "atmospheric_river"]
LAT, LON = np.linspace(-90, 90, 5), np.arange(0, 360, 45.0)


def write_map(path, rng, labels=None, **fields):
    """A file in the layout of ClimateNet: time is a string, the name of the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # the HDF5 library does not overwrite what is open
    shape = (1, len(LAT), len(LON))
    values = {"TMQ": rng.normal(20, 5, shape), "PSL": rng.normal(1e5, 1e3, shape)} | fields
    labels = rng.integers(0, 3, shape) if labels is None else labels
    values = {name: value.astype("f4") for name, value in values.items()} | {"LABELS": labels}
    dims = ["time", "lat", "lon"]
    data = {name: (dims, value) for name, value in values.items()}
    xr.Dataset(data, {"time": [path.name], "lat": LAT, "lon": LON}).to_netcdf(path)
    return values


@pytest.fixture
def climatenet(tmp_path):
    """Four maps to train, each labelled twice, and two to test; gives the folder and the values."""
    rng, written = np.random.default_rng(0), {}
    for folder, year, count in (("train", 1996, 4), ("test", 2011, 2)):
        for day in range(1, count + 1):
            for number in (1, 2):
                name = f"data-{year}-06-{day:02}-01-{number}.nc"
                written[name] = write_map(tmp_path / folder / name, rng)
    return tmp_path, written


def make(path, **changes):
    settings = {"inputs": ["TMQ", "PSL"], "target": "LABELS", "classes": CLASSES}
    settings |= {"split": {"gap": 0}}
    return ClimateData(path, **(settings | changes))


def test_samples_and_facts_are_those_of_the_files(climatenet):
    path, written = climatenet
    data = make(path)
    assert [len(data.samples(name)) for name in ("train", "val", "test", "all")] == [6, 2, 4, 12]
    sample = data.samples("test").read(1, None)
    expected = written["data-2011-06-01-01-2.nc"]
    np.testing.assert_array_equal(sample["image_CHW"][1], expected["PSL"][0])
    np.testing.assert_array_equal(sample["label_HW"], expected["LABELS"][0])
    area_HW = np.repeat(np.cos(np.deg2rad(LAT))[:, None], len(LON), 1)
    np.testing.assert_allclose(sample["area_HW"], area_HW, atol=1e-7)
    types = {name: values.dtype.name for name, values in sample.items()}
    assert types == {"image_CHW": "float32", "label_HW": "int64", "area_HW": "float32"}

    facts = data.facts()
    assert json.loads(json.dumps(facts)) == facts
    train = [written[key] for key in data.samples("train").keys]
    tmq, labels = (np.stack([item[name] for item in train]) for name in ("TMQ", "LABELS"))
    assert facts["mean_C"][0] == pytest.approx(tmq.astype(float).mean(), rel=1e-12)
    assert facts["std_C"][0] == pytest.approx(tmq.astype(float).std(), rel=1e-12)
    np.testing.assert_allclose(facts["class_fraction_K"], np.bincount(labels.flat) / labels.size)
    assert facts["model"] == data.dimensions() == {"in_channels": 2, "num_classes": 3}
    assert (facts["inputs"], facts["classes"], facts["periodic"]) == (["TMQ", "PSL"], CLASSES, True)
    assert (facts["latitude"], facts["longitude"]) == (LAT.tolist(), LON.tolist())
    assert data.example() == [path / "test" / "data-2011-06-01-01-1.nc"]
    assert len(data.files()) == 12


def test_augmentation_turns_image_and_label_together(climatenet):
    samples = make(climatenet[0]).samples("train")
    plain, turned = samples.read(0, None), samples.read(0, np.random.default_rng(1))
    turn = int(np.random.default_rng(1).integers(len(LON)))
    assert turn > 0
    for name in ("image_CHW", "label_HW"):
        np.testing.assert_array_equal(turned[name], np.roll(plain[name], turn, -1))
    plain["image_CHW"][:] = 0  # a reader's copy, not the memory
    assert samples.read(0, None)["image_CHW"].any()


def test_cache_keeps_what_fits(climatenet):
    reads = []
    for cache in (0, 1.0):
        data = make(climatenet[0], cache_GiB=cache)
        read = data.catalogue.read
        data.catalogue.read = lambda key, read=read: reads.append(key) or read(key)
        for _ in range(3):
            data.samples("train").read(0, None)
    assert len(reads) == 3 + 1


def test_missing_pixels_are_ignored(climatenet):
    path, rng = climatenet[0], np.random.default_rng(5)
    fields = np.ones((1, len(LAT), len(LON)))
    fields[0, 2, 3] = np.nan
    labels = np.zeros(fields.shape)
    labels[0, 1, 1] = np.nan
    write_map(path / "test" / "data-2011-06-01-01-1.nc", rng, labels, TMQ=fields)
    label_HW = make(path, weight=None).samples("test").read(0, None)["label_HW"]
    assert label_HW[2, 3] == label_HW[1, 1] == -1
    assert (label_HW < 0).sum() == 2


def test_thresholds_make_classes_of_any_variable(shared_data):
    """NumPy's own comparison on the field as netCDF4 reads it."""
    path = shared_data / "climate" / "A1B_north_america.nc"
    data = ClimateData(
        path,
        ["air_temperature"],
        "air_temperature",
        ["cold", "mild", "hot"],
        [273.15, 293.15],
        split={"by": "time", "gap": 2},
    )
    assert [len(data.samples(name)) for name in ("train", "val", "test")] == [154, 34, 48]
    sample = data.samples("train").read(0, np.random.default_rng(0))  # regional: never turned
    image_HW = sample["image_CHW"][0]
    expected = (image_HW >= 273.15).astype(int) + (image_HW >= 293.15)
    np.testing.assert_array_equal(sample["label_HW"], expected)
    assert data.samples("test").keys[0] > data.samples("val").keys[-1]


def test_labels_in_files_of_their_own(tmp_path):
    """Matched by time, whatever the files are called and whichever way they lie."""
    rng = np.random.default_rng(3)
    units = {"units": "days since 2000-01-01"}
    (tmp_path / "maps").mkdir()
    (tmp_path / "labels").mkdir()
    fields_THW, labels_THW = rng.normal(size=(12, 5, 8)), rng.integers(0, 2, (12, 5, 8))
    dims, coords = ["time", "lat", "lon"], {"lat": LAT, "lon": LON}
    for day in range(12):
        time = {"time": ("time", [float(day)], units)}
        field = xr.Dataset({"t": (dims, fields_THW[day, None].astype("f4"))}, coords | time)
        field.to_netcdf(tmp_path / "maps" / f"{day}.nc")
    time = {"time": ("time", np.arange(12.0)[::-1], units)}
    truth = xr.Dataset({"event": (dims, labels_THW[::-1])}, coords | time)
    truth.isel(lat=slice(None, None, -1)).to_netcdf(tmp_path / "labels" / "all.nc")
    paths = [tmp_path / "maps", tmp_path / "labels"]
    split = {"by": "time", "val": 0.2, "test": 0.2, "gap": 0}
    samples = ClimateData(paths, ["t"], "event", ["no", "yes"], split=split).samples("all")
    assert len(samples) == 12
    for day in range(12):
        np.testing.assert_array_equal(samples.read(day, None)["label_HW"], labels_THW[day])


def test_without_target_there_are_no_labels(shared_data):
    data = ClimateData(shared_data / "climate" / "mrsos_HadGEM2.nc", ["mrsos"])
    assert (data.samples("train").read(0, None)["label_HW"] == -1).all()
    facts = data.facts()
    assert (facts["classes"], facts["class_fraction_K"]) == ([], [])
    assert "62." in data.report().tables[0].rows[0][-2]  # 62.2 % of it is sea


def test_report_says_what_was_found(climatenet):
    path, rng = climatenet[0], np.random.default_rng(6)
    shape = (1, len(LAT), len(LON))
    for file in (path / "train").iterdir():
        write_map(file, rng, np.zeros(shape, int), TMQ=np.ones(shape))
    (path / "test" / "data-2011-06-01-01-1.nc").rename(path / "train" / "data-2011-06-01-01-1.nc")
    report = make(path).report()
    assert report.facts["grid"].startswith("5 x 8 (latitude x longitude), global in longitude")
    assert report.facts["samples"] == "8 train, 1 val, 3 test (by folder)"
    assert [row[0] for row in report.tables[0].rows] == ["TMQ", "PSL"]
    assert "TMQ is constant: nothing can be learnt from it" in report.warnings
    assert "class tropical_cyclone has no pixel in the train split" in report.warnings
    assert "1 instants are in two splits: scores will flatter" in report.warnings


def test_label_that_is_no_class_names_file_and_values(climatenet):
    path = climatenet[0]
    expected = r"06-01-01-1\.nc: LABELS has the values 2; the classes are 0\.\.1 \(no, yes\)"
    with pytest.raises(DataError, match=expected):
        make(path, classes=["no", "yes"]).facts()
    labels = np.full((1, len(LAT), len(LON)), 0.5)
    write_map(path / "test" / "data-2011-06-01-01-1.nc", np.random.default_rng(7), labels)
    with pytest.raises(DataError, match=r"LABELS has the values 0.5"):
        make(path).samples("test").read(0, None)


def test_channel_without_a_value_is_named(climatenet):
    path, rng = climatenet[0], np.random.default_rng(8)
    for file in (path / "train").iterdir():
        write_map(file, rng, PSL=np.full((1, len(LAT), len(LON)), np.nan))
    with pytest.raises(DataError, match=r"1996-06-01-01-1\.nc: PSL is missing everywhere in train"):
        make(path).facts()


def test_truncated_file_is_named(climatenet):
    file = climatenet[0] / "train" / "data-1996-06-03-01-1.nc"
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(DataError, match=r"1996-06-03-01-1\.nc: cannot be read as NetCDF"):
        make(climatenet[0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": []}, "data.inputs is empty"),
        ({"weight": "cos"}, "data.weight=cos is unknown; there is: area, null"),
        ({"split": {"by": "random"}}, "data.split.by=random is unknown"),
        ({"thresholds": [2, 1]}, r"data.thresholds=\[2, 1\]: each must exceed the one before"),
        ({"thresholds": [1]}, r"data.thresholds=\[1\] make 2 classes, data.classes names 3:"),
        ({"classes": ["a", "a"]}, "two to 127 names that differ in letters"),
    ],
)
def test_wrong_configuration(tmp_path, changes, message):
    with pytest.raises(ConfigError, match=message):
        make(tmp_path, **changes)


def test_rules_refuse_other_units(tmp_path):
    rng = np.random.default_rng(0)
    dims, coords = ["time", "lat", "lon"], {"lat": LAT, "lon": LON}
    time = {"time": ("time", np.arange(9.0), {"units": "days since 2000-01-01"})}
    units = {"msl": "Pa", "u10": "km/h", "v10": "km/h", "tcwv": "kg m**-2"}
    fields = {
        name: (dims, rng.normal(1e5, 10, (9, 5, 8)).astype("f4"), {"units": unit})
        for name, unit in units.items()
    }
    xr.Dataset(fields, coords | time).to_netcdf(tmp_path / "a.nc")
    with pytest.raises(DataError, match=r"u10 is in km/h; the rules take wind_east in m s-1"):
        make(tmp_path, inputs=["msl"], target="heuristic", split={"by": "time"})
