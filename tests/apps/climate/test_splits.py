from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.climate.splits import check_split, instant, split_samples
from scadl_core.errors import ConfigError, DataError

BY_TIME = {"by": "time", "val": 0.15, "test": 0.2, "gap": 0}


def labelled(count, labellings=1):
    days = [f"data-2003-06-{day:02}-01" for day in range(1, count + 1)]
    return [f"{day}-{number}.nc" for day in days for number in range(1, labellings + 1)]


def test_instant_drops_the_number_of_the_labelling_alone():
    assert instant("data-2003-06-01-01-2.nc") == "data-2003-06-01-01"
    assert instant("2003-06-01T00:00:00") == "2003-06-01T00:00:00"
    assert instant("map-1") == "map-1"


def test_blocks_in_order():
    split = split_samples(dict.fromkeys("abcdefghijklmnopqrst", Path()), **BY_TIME)
    assert {name: "".join(keys) for name, keys in split.items()} == {
        "train": "abcdefghijklm",
        "val": "nop",
        "test": "qrst",
    }


@given(st.integers(3, 28), st.integers(1, 4))
def test_every_sample_once_and_no_instant_in_two_splits(count, labellings):
    keys = labelled(count, labellings)
    split = split_samples(dict.fromkeys(keys, Path()), **BY_TIME)
    assert [*split["train"], *split["val"], *split["test"]] == keys
    train, val, test = ({instant(key) for key in split[name]} for name in ("train", "val", "test"))
    assert not train & val and not train & test and not val & test


@given(st.integers(24, 28), st.integers(1, 3), st.integers(0, 2))
def test_blocks_are_apart_by_the_gap(count, labellings, gap):
    keys = labelled(count, labellings)
    split = split_samples(dict.fromkeys(keys, Path()), **BY_TIME | {"gap": gap})
    days = [sorted({int(instant(key)[13:15]) for key in split[name]}) for name in split]
    train, val, test = days
    assert val[0] - train[-1] == test[0] - val[-1] == gap + 1
    assert (train[0], test[-1]) == (1, count)


def test_whole_files_are_dealt_out():
    keys = [f"2003-06-{day:02}T00:00:00" for day in range(1, 13)]
    files = {key: Path(f"{index // 3}.nc") for index, key in enumerate(keys)}
    split = split_samples(files, "file", val=0.25, test=0.25, gap=1)
    assert split == {"train": keys[:5], "val": keys[6:8], "test": keys[9:]}


def test_folders_and_validation_from_the_end_of_train():
    keys = labelled(10, 2)
    folders = {
        key: Path(f"/data/{'train' if i < 16 else 'test'}/{key}") for i, key in enumerate(keys)
    }
    split = split_samples(folders, "folder", 0.25, 0.2, 0)
    assert (split["train"], split["val"], split["test"]) == (keys[:12], keys[12:16], keys[16:])
    folders[keys[0]] = Path("/data/validation/a.nc")
    assert split_samples(folders, "folder", 0.25, 0.2, 0)["val"] == keys[:1]


def test_empty_split_says_which_and_what_to_change():
    few = dict.fromkeys("ab", Path("/data"))
    expected = r"'train' has no sample \(by time: train 0, val 1, test 1\); give data.path more"
    with pytest.raises(DataError, match=expected):
        split_samples(few, **BY_TIME)
    with pytest.raises(DataError, match=r"'train' has no sample .*a folder train/ below data.path"):
        split_samples(few, "folder", 0.15, 0.2, 0)
    with pytest.raises(DataError, match=r"'test' has no sample .* or set data.split.by=time"):
        split_samples(dict.fromkeys("abc", Path("/data/train/a.nc")), "folder", 0.15, 0, 0)
    assert split_samples(few, "time", 0, 0.5, 0) == {"train": ["a"], "val": [], "test": ["b"]}


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ({"by": "random"}, "data.split.by=random is unknown; there is: folder, file, time"),
        ({"vall": 0.1}, r"data.split.vall is unknown; did you mean 'val'\?"),
        ({"gap": -1}, "data.split.gap=-1: expected a whole number from 0"),
        ({"val": 0.6, "test": 0.4}, "data.split: val=0.6 and test=0.4 must be shares"),
    ],
)
def test_wrong_configuration(split, message):
    with pytest.raises(ConfigError, match=message):
        check_split(BY_TIME | split)
