"""A small file in each format that is read, and the words that read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    """Attributes:
    app: The pipeline that reads it.
    write: Makes the files in a folder; the path of the one that is damaged.
    words: Of the command, but for ``data.path``.
    whole: Whether the folder is the data, not the file.
    """

    app: str
    write: Callable[[Path], Path]
    words: tuple[str, ...]
    whole: bool = False


GRID = ("data=netcdf", "data.inputs=[u,v]", "data.target=u", "data.thresholds=[0.5]",
        "data.classes=[usual,high]")  # fmt: skip
DEEPCAM = ("data=deepcam", "data.inputs=[TMQ,U850,V850,PSL]")
JETS = ("data=table", "data.inputs={flat: [x], particles: [p]}", "data.target=y",
        "data.classes=[no,yes]", "+data.constituents.length=4")  # fmt: skip
RECORDS = (*JETS[:1], "data.inputs={flat: [jets.x], particles: [tracks.p]}", "data.target=jets.y",
           *JETS[3:])  # fmt: skip
SCENE = ("data=raster", "data.split.by=area", "data.crop=8", "data.window=8")
GRAPH = ("data=graph",)


def _maps() -> Any:
    import xarray as xr

    rng = np.random.default_rng(0)
    fields = {
        name: (("time", "lat", "lon"), rng.normal(size=(12, 8, 12)).astype("f4")) for name in "uv"
    }
    return xr.Dataset(
        fields,
        {
            "time": ("time", np.arange(12.0), {"units": "days since 2000-01-01"}),
            "lat": ("lat", np.linspace(-70, 70, 8), {"units": "degrees_north"}),
            "lon": ("lon", np.arange(12) * 30.0, {"units": "degrees_east"}),
        },
    )


def netcdf4(folder: Path) -> Path:
    encoding = {"v": {"zlib": True}}
    _maps().to_netcdf(folder / "maps.nc", format="NETCDF4", encoding=encoding)
    return folder / "maps.nc"


def netcdf3(folder: Path) -> Path:
    _maps().to_netcdf(folder / "maps.nc", format="NETCDF3_64BIT", engine="scipy")
    return folder / "maps.nc"


def zarr(folder: Path) -> Path:
    _maps().to_zarr(folder / "maps.zarr", zarr_format=2, consolidated=False)
    return folder / "maps.zarr" / "u" / ".zarray"


def zarr_chunk(folder: Path) -> Path:
    return zarr(folder).with_name("0.0.0")


def deepcam(folder: Path) -> Path:
    from apps.climate.sample import write_sample

    write_sample(folder / "maps", 4, 1, 16, 24, layout="deepcam")
    return sorted((folder / "maps" / "train").iterdir())[0]


def _jets() -> dict[str, Any]:
    import awkward as ak

    rng = np.random.default_rng(0)
    counts = rng.integers(1, 5, 200)
    particles = ak.unflatten(rng.exponential(size=counts.sum()).astype("f4"), counts)
    label = rng.integers(0, 2, 200).astype("i4")
    return {"x": rng.normal(label, 1).astype("f4"), "y": label, "p": particles}


def ttree(folder: Path) -> Path:
    import uproot

    columns = _jets()
    with uproot.recreate(folder / "jets.root") as file:
        types = {"x": "f4", "y": "i4", "p": "var * float32"}
        file.mktree("tree", types).extend(columns)
    return folder / "jets.root"


def rntuple(folder: Path) -> Path:
    import uproot

    with uproot.recreate(folder / "jets.root") as file:
        file.mkrntuple("tree", _jets())
    return folder / "jets.root"


def hdf5(folder: Path) -> Path:
    import awkward as ak
    import h5py

    columns = _jets()
    jets = np.zeros(200, [("x", "f4"), ("y", "i4")])
    jets["x"], jets["y"] = columns["x"], columns["y"]
    tracks = np.zeros((200, 4), [("p", "f4"), ("valid", "?")])
    tracks["p"] = ak.to_numpy(ak.fill_none(ak.pad_none(columns["p"], 4), 0))
    tracks["valid"] = np.arange(4) < ak.to_numpy(ak.num(columns["p"]))[:, None]
    with h5py.File(folder / "jets.h5", "w") as file:
        file.create_dataset("jets", data=jets)
        file.create_dataset("tracks", data=tracks, compression="gzip")
    return folder / "jets.h5"


def jets_parquet(folder: Path) -> Path:
    import awkward as ak

    ak.to_parquet(ak.Array(_jets()), folder / "jets.parquet", row_group_size=50)
    return folder / "jets.parquet"


def _scene(folder: Path, name: str, **profile: Any) -> Path:
    import rasterio
    from affine import Affine

    rng = np.random.default_rng(0)
    coarse = rng.integers(100, 4000, (2, 24, 24)).astype("u2")
    with rasterio.open(
        folder / name, "w", dtype="uint16", count=2, height=192, width=192, crs="EPSG:32631",
        transform=Affine(10, 0, 500_000, 0, -10, 5_600_000), **profile,
    ) as file:  # fmt: skip
        file.write(coarse.repeat(8, 1).repeat(8, 2))
    return folder / name


def geotiff(folder: Path) -> Path:
    return _scene(folder, "scene.tif", driver="GTiff", compress="deflate", tiled=True,
                  blockxsize=64, blockysize=64)  # fmt: skip


def jpeg2000(folder: Path) -> Path:
    return _scene(folder, "scene.jp2", driver="JP2OpenJPEG", quality=100, reversible="YES")


def _tables() -> tuple[Any, Any]:
    import pandas as pd

    rng = np.random.default_rng(0)
    nodes = pd.DataFrame({"id": np.arange(60) + 3, "a": rng.normal(size=60), "b": rng.random(60)})
    nodes["label"] = [f"class_{it}" for it in rng.integers(0, 2, 60)]
    ends = rng.integers(0, 60, (2, 200)) + 3
    return nodes, pd.DataFrame({"source": ends[0], "target": ends[1]})


def graph_parquet(folder: Path) -> Path:
    for name, table in zip(("nodes", "edges"), _tables(), strict=True):
        table.to_parquet(folder / f"{name}.parquet", index=False)
    return folder / "nodes.parquet"


def graph_csv(folder: Path) -> Path:
    for name, table in zip(("nodes", "edges"), _tables(), strict=True):
        table.to_csv(folder / f"{name}.csv", index=False)
    return folder / "nodes.csv"


def graph_gzip(folder: Path) -> Path:
    graph_csv(folder)
    _tables()[1].to_csv(folder / "edges.csv.gz", index=False)
    (folder / "edges.csv").unlink()
    return folder / "edges.csv.gz"


def _arrays() -> dict[str, Any]:
    nodes, edges = _tables()
    label = np.array(nodes["label"] == "class_1", np.int64)
    return {"node_features": np.array(nodes[["a", "b"]], "f4"), "node_labels": label,
            "edges": np.array(edges) - 3}  # fmt: skip


def npz(folder: Path) -> Path:
    np.savez_compressed(folder / "graph.npz", **_arrays())
    return folder / "graph.npz"


def matlab(folder: Path) -> Path:
    import scipy.io
    import scipy.sparse as sp

    of = _arrays()
    matrix = sp.coo_matrix((np.ones(200), of["edges"].T), shape=(60, 60)).tocsc()
    content = {"network": matrix, "label": of["node_labels"][:, None],
               "attributes": of["node_features"]}  # fmt: skip
    scipy.io.savemat(folder / "graph.mat", content)
    return folder / "graph.mat"


def graphml(folder: Path) -> Path:
    import networkx

    nodes, edges = _tables()
    graph = networkx.DiGraph()
    for row in nodes.itertuples():
        graph.add_node(str(row.id), a=float(row.a), b=float(row.b), label=str(row.label))
    graph.add_edges_from((str(u), str(v)) for u, v in edges.to_numpy().tolist())
    networkx.write_graphml(graph, folder / "graph.graphml")
    return folder / "graph.graphml"


def pyg(folder: Path) -> Path:
    import torch
    from torch_geometric.data import Data

    of = {name: torch.from_numpy(it) for name, it in _arrays().items()}
    data = Data(of["node_features"], of["edges"].T.contiguous(), y=of["node_labels"])
    torch.save(data, folder / "graph.pt")
    return folder / "graph.pt"


def ogb(folder: Path) -> Path:
    import pandas as pd

    of, raw = _arrays(), folder / "graph" / "raw"
    raw.mkdir(parents=True)
    values: dict[str, Any] = {"edge": of["edges"], "node-feat": of["node_features"]}
    values |= {"node-label": of["node_labels"], "num-node-list": [60], "num-edge-list": [200]}
    for name, table in values.items():
        pd.DataFrame(table).to_csv(raw / f"{name}.csv.gz", header=False, index=False)
    return raw / "edge.csv.gz"


CASES = {
    "netcdf4": Case("climate", netcdf4, GRID),
    "netcdf3": Case("climate", netcdf3, GRID),
    "zarr-metadata": Case("climate", zarr, GRID, whole=True),
    "zarr-chunk": Case("climate", zarr_chunk, GRID, whole=True),
    "deepcam-hdf5": Case("climate", deepcam, DEEPCAM, whole=True),
    "root-ttree": Case("hep", ttree, JETS),
    "root-rntuple": Case("hep", rntuple, JETS),
    "jets-hdf5": Case("hep", hdf5, RECORDS),
    "jets-parquet": Case("hep", jets_parquet, JETS),
    "geotiff": Case("remote_sensing", geotiff, SCENE),
    "jpeg2000": Case("remote_sensing", jpeg2000, SCENE),
    "graph-parquet": Case("graphs", graph_parquet, GRAPH, whole=True),
    "graph-csv": Case("graphs", graph_csv, GRAPH, whole=True),
    "graph-gzip": Case("graphs", graph_gzip, GRAPH, whole=True),
    "graph-npz": Case("graphs", npz, GRAPH),
    "graph-matlab": Case("graphs", matlab, GRAPH),
    "graphml": Case("graphs", graphml, GRAPH),
    "graph-torch": Case("graphs", pyg, GRAPH),
    "graph-ogb": Case("graphs", ogb, GRAPH, whole=True),
}
