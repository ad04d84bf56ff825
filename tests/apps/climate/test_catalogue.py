from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from apps.climate.catalogue import Catalogue
from apps.climate.files import find_files
from scadl_core.errors import DataError


def write(path, hours=(0,), names=("u",), height=3, value=0.0, calendar="standard"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # which may still be open
    attrs = {"units": "hours since 2000-01-01", "calendar": calendar}
    coords = {"lat": np.linspace(-10, 10, height), "lon": [0.0, 10, 20]}
    coords |= {"time": ("time", np.asarray(hours, float), attrs)} if hours else {}
    dims = ["time"] * bool(hours) + ["lat", "lon"]
    shape = [len(hours)] * bool(hours) + [height, 3]
    fields = {name: (dims, np.full(shape, value, "f4")) for name in names}
    xr.Dataset(fields, coords).to_netcdf(path)
    return path


def test_files_from_folder_pattern_list_in_natural_order(tmp_path):
    for name in ("a-10.nc", "a-2.nc", "sub/b.nc", ".hidden.nc", "notes.txt"):
        write(tmp_path / name)
    names = [file.name for file in find_files(tmp_path)]
    assert names == ["a-2.nc", "a-10.nc", "b.nc"]
    assert [file.name for file in find_files(str(tmp_path / "a-*.nc"))] == ["a-2.nc", "a-10.nc"]
    assert len(find_files(str(tmp_path / "**" / "*.nc"))) == 3
    assert find_files([tmp_path / "a-2.nc", tmp_path / "a-*.nc"])[0].name == "a-2.nc"


def test_no_file_says_what_is_there(tmp_path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(DataError, match=r"data.path: no file matches .*\*\.nc; .* notes\.txt"):
        find_files(tmp_path / "*.nc")
    with pytest.raises(DataError, match=r"data.path: the folder .* holds no file ending in .nc"):
        find_files(tmp_path)


def test_variables_spread_over_real_files(shared_data):
    files = find_files([shared_data / "climate" / f"{name}wnd_mean.nc" for name in "uv"])
    catalogue = Catalogue(files, ["uwnd", "vwnd"])
    assert len(catalogue.keys) == 12
    with xr.open_dataset(files[1]) as dataset:
        expected = dataset.vwnd[3].values
    np.testing.assert_array_equal(catalogue.read(catalogue.keys[3])[1, ::-1], expected)


def test_one_time_step_a_file_and_flipped_dates(tmp_path):
    steps = [write(tmp_path / f"{h}.nc", [h], value=h) for h in (12, 0, 6)]
    with xr.open_dataset(steps[0]) as dataset:
        flipped = dataset.isel(lat=slice(None, None, -1)).load()
    flipped.to_netcdf(steps[0])
    catalogue = Catalogue(steps, ["u"])
    assert [key[11:13] for key in catalogue.keys] == ["00", "06", "12"]
    assert [float(catalogue.read(key)[0, 0, 0]) for key in catalogue.keys] == [0, 6, 12]


def test_samples_without_all_variables_are_reported(tmp_path):
    files = [write(tmp_path / "u.nc", [0, 6, 12]), write(tmp_path / "v.nc", [6, 12], ["v"])]
    catalogue = Catalogue(files, ["u", "v"])
    assert len(catalogue.keys) == 2
    assert catalogue.warnings == [
        "1 of 3 samples lack v, as 2000-01-01T00:00:00; they are left out"
    ]
    write(tmp_path / "v.nc", [100], ["v"])
    with pytest.raises(DataError, match=r"no sample has all of u, v: .*are matched by time"):
        Catalogue(files, ["u", "v"])


def test_field_without_time_serves_every_sample(tmp_path):
    files = [write(tmp_path / "u.nc", [0, 6]), write(tmp_path / "mask.nc", (), ["mask"], value=7)]
    catalogue = Catalogue(files, ["u", "mask"])
    assert len(catalogue.keys) == 2
    assert catalogue.read(catalogue.keys[1])[1].max() == 7


def test_same_sample_twice_names_both_files(tmp_path):
    files = [write(tmp_path / f"{name}.nc", [0, 6]) for name in "ab"]
    with pytest.raises(DataError, match=r"u of 2000-01-01T00.* is in .*a\.nc and again in .*b\.nc"):
        Catalogue(files, ["u"])


def test_missing_variable_names_its_neighbours(tmp_path):
    file = write(tmp_path / "a.nc", names=["TMQ", "PSL"])
    expected = r"data.inputs: variable 'TMQQ' is not in .*a\.nc; did you mean 'TMQ'\?"
    with pytest.raises(DataError, match=expected):
        Catalogue([file], ["TMQQ"])
    expected = r"data.target: variable 'LABELS' is not in any of 2 files such as .*a\.nc; there is:"
    with pytest.raises(DataError, match=expected):
        Catalogue([file, write(tmp_path / "b.nc", [6], ["TMQ"])], ["TMQ"], "LABELS")


def test_differing_grids_name_both_files(tmp_path, shared_data):
    files = [shared_data / "climate" / f"tas_{name}.nc" for name in ("day_MIROC6", "FGOALS-g3")]
    expected = "MIROC6.nc and .*FGOALS-g3.nc are on differing grids: 128 x 256 .* against 80 x 180"
    with pytest.raises(DataError, match=expected):
        Catalogue(files, ["tas"])


def test_differing_calendars_name_both_files(tmp_path):
    files = [write(tmp_path / "a.nc"), write(tmp_path / "b.nc", [6], calendar="noleap")]
    with pytest.raises(
        DataError, match=r"a\.nc \(standard\) and .*b\.nc \(noleap\) have differing"
    ):
        Catalogue(files, ["u"])
