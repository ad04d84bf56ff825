"""Lines of every kind of file, the date line, and what is no coastline."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import shapefile
from matplotlib.figure import Figure

from apps.climate.coast import draw_coast, read_coast
from scadl_core.errors import ConfigError, DataError

LINE, RING = [[170.0, 0], [180, 5], [-170, 9]], [[0.0, 0], [9, 0], [9, 9], [0, 0]]
GEOJSON = {
    "type": "FeatureCollection",
    "features": [
        {"type": "Feature", "geometry": {"type": "LineString", "coordinates": LINE}},
        {"type": "Feature", "geometry": {"type": "MultiPolygon", "coordinates": [[RING], [RING]]}},
        {"type": "Feature", "geometry": {"type": "Point", "coordinates": [1, 2]}},
        {"type": "Feature", "geometry": None},
    ],
}


def test_no_coastline_reads_nothing() -> None:
    assert read_coast(None) == []


def test_lines_of_geojson(tmp_path: Path) -> None:
    (tmp_path / "coast.geojson").write_text(json.dumps(GEOJSON))
    lines = read_coast(str(tmp_path / "coast.geojson"))
    assert [line.tolist() for line in lines] == [LINE, RING, RING]


def shapefile_at(path: Path) -> None:
    path.parent.mkdir(parents=True)
    with shapefile.Writer(str(path)) as writer:
        writer.field("name", "C")
        writer.line([LINE])
        writer.record("a")


def test_lines_of_a_shapefile(tmp_path: Path) -> None:
    shapefile_at(tmp_path / "a" / "coast.shp")
    assert [it.tolist() for it in read_coast(str(tmp_path / "a" / "coast.shp"))] == [LINE]


def test_cartopy_means_what_it_has_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"pre_existing_data_dir": "", "data_dir": str(tmp_path)}
    monkeypatch.setitem(sys.modules, "cartopy", SimpleNamespace(config=config))
    with pytest.raises(ConfigError, match=r"coastline: .*No such file.*natural_earth.*null draws"):
        read_coast("cartopy")
    shapefile_at(tmp_path / "shapefiles/natural_earth/physical/ne_110m_coastline.shp")
    assert [line.tolist() for line in read_coast("cartopy")] == [LINE]


def test_what_is_no_coastline_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"figures.coastline: .*nowhere.geojson.*null draws none"):
        read_coast(str(tmp_path / "nowhere.geojson"))
    for text in ("no JSON", '{"a": 1}', '{"coordinates": [["x", 1], [2, "y"]]}'):
        (tmp_path / "bad.geojson").write_text(text)
        with pytest.raises(DataError, match=r"figures.coastline: .*bad.geojson"):
            read_coast(str(tmp_path / "bad.geojson"))
    (tmp_path / "bad.shp").write_bytes(b"no shapes")
    with pytest.raises(DataError, match=r"bad.shp is no GeoJSON or shapefile"):
        read_coast(str(tmp_path / "bad.shp"))
    monkeypatch.setitem(sys.modules, "cartopy", None)
    with pytest.raises(ConfigError, match="install cartopy or, for shapefiles, pyshp"):
        read_coast("cartopy")


@pytest.mark.parametrize(("west", "starts"), [(0.0, {-190, 170, 530}), (-180.0, {-190, 170, 530})])
def test_lines_are_unbroken_on_any_map(west: float, starts: set[float]) -> None:
    """What lies over an edge of the map is drawn at both."""
    axes = Figure().subplots()
    axes.set(xlim=(west, west + 360), ylim=(-90, 90))
    draw_coast(axes, [np.array(LINE)])
    (collection,) = axes.collections
    copies = [path.vertices for path in collection.get_paths()]
    assert {copy[0, 0] for copy in copies} == starts
    for copy in copies:
        np.testing.assert_array_equal(copy - copy[0], [[0, 0], [10, 5], [20, 9]])
    assert axes.get_xlim() == (west, west + 360)
