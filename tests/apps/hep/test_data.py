"""What becomes of files: inputs, labels, weights, splits, batches; the cases that users report."""

from __future__ import annotations

import collections
import pickle
from itertools import chain
from pathlib import Path
from typing import Any

import awkward as ak
import h5py
import numpy as np
import pytest
import uproot

from apps.hep.data import HEPData
from apps.hep.rows import Rows
from apps.hep.sample import write_sample
from apps.hep.tables import cut
from scadl_core.comm import World
from scadl_core.errors import ConfigError, DataError, ScadlError
from scadl_core.workflow.loaders import Loaders

FLAT: dict[str, Any] = {"inputs": ["x", "y"], "target": "label", "classes": ["no", "yes"]}
SPLIT = {"val": 0.2, "test": 0.2}


def write(path: Path, tree: str = "tree", **columns: Any) -> Path:
    with uproot.recreate(path) as file:
        file.mktree(tree, {name: it.type.content if isinstance(it, ak.Array) else it.dtype
                           for name, it in columns.items()}).extend(columns)  # fmt: skip
    return path


def table(count: int = 400, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, count).astype(np.int32)
    columns = {"x": rng.normal(label, 1), "y": rng.normal(size=count), "label": label}
    return columns | {"event": np.arange(count) + 1000 * seed}


def make(path: Path, **other: Any) -> HEPData:
    return HEPData(path, **{**FLAT, "split": SPLIT, **other})


def everything(data: HEPData, split: str = "all") -> dict[str, np.ndarray]:
    samples = data.samples(split)
    return samples.batch(range(len(samples)))


def test_inputs_are_the_formulas_of_every_constituent(jetclass: Any, jets: Path) -> None:
    data = jetclass()
    found, number = everything(data, "test"), 0
    for file in data.files():
        if file.parent.name != "test":
            continue
        with uproot.open(file) as opened:
            branches = opened["tree"].arrays()
        for jet in branches:
            pt = np.hypot(np.asarray(jet.part_px), np.asarray(jet.part_py))
            kept = np.argsort(-pt, kind="stable")[:64]
            features = found["features_BPF"][number][: len(kept)]
            np.testing.assert_allclose(features[:, 0], np.log(pt[kept]), rtol=1e-6)
            np.testing.assert_array_equal(features[:, 3], np.asarray(jet.part_charge)[kept])
            energy = found["vectors_BPD"][number, : len(kept), 3]
            np.testing.assert_array_equal(energy, np.asarray(jet.part_energy)[kept])
            assert found["mask_BP"][number].sum() == len(kept)
            assert not found["features_BPF"][number, len(kept) :].any()
            classes = ["label_QCD", "label_Hbb", "label_Wqq", "label_Tbqq"]
            assert jet[classes[found["label_B"][number]]] == 1
            assert found["weight_B"][number] == pytest.approx(float(jet.gen_weight))
            assert found["mass_B"][number] == pytest.approx(float(jet.jet_sdmass))
            number += 1
    assert number == 200
    assert (found["weight_B"] < 0).mean() == pytest.approx(0.1, abs=0.06)


def test_both_formats_of_the_sample_give_the_same(jetclass: Any) -> None:
    one, other = (everything(jetclass(kind), "train") for kind in ("ttree", "rntuple"))
    assert one.keys() == other.keys()
    for name, values in one.items():
        np.testing.assert_array_equal(values, other[name])


def test_statistics_are_those_of_all_training_rows(jetclass: Any) -> None:
    data = jetclass(chunk_rows=50)
    features = everything(data, "train")
    values_NF = features["features_BPF"][features["mask_BP"]]
    of = data.survey
    np.testing.assert_allclose(
        of["mean_F"], values_NF.mean(0, dtype=np.float64), rtol=1e-5, atol=1e-7
    )
    quantiles = np.quantile(values_NF, (0.16, 0.5, 0.84), axis=0)
    for wanted, q in zip(quantiles, (0.16, 0.5, 0.84), strict=True):
        np.testing.assert_allclose(of[f"q{q}_F"], wanted, rtol=1e-6)
    centre, factor, *_ = np.transpose(data.standards()["particles"])
    np.testing.assert_allclose(centre, quantiles[1], rtol=1e-6)
    widest = np.maximum(quantiles[2] - quantiles[1], quantiles[1] - quantiles[0])
    np.testing.assert_allclose(factor, 1 / np.where(widest > 0, widest, 1), rtol=1e-5)


def test_constituents_in_another_order_are_the_same(
    jets: Path, tmp_path: Path, jetclass: Any
) -> None:
    """Also where some are cut off: the hardest are kept."""
    (tmp_path / "train").mkdir()
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        (tmp_path / split).mkdir(exist_ok=True)
        for file in (jets / "ttree" / split).iterdir():
            with uproot.open(file) as opened:
                found = opened["tree"].arrays()
            key = ak.unflatten(rng.random(ak.sum(ak.num(found.part_px))), ak.num(found.part_px))
            order = ak.argsort(key)
            columns = {
                name: found[name][order] if name.startswith("part_") and found[name].ndim > 1
                else np.asarray(found[name]) for name in found.fields if name != "part_count"
            }  # fmt: skip
            write(tmp_path / split / file.name, **columns)
    settings = {"constituents": {"length": 20, "order": "part_pt"}}
    one, other = jetclass(**settings), jetclass(path=tmp_path, **settings)
    for name, values in everything(one, "test").items():
        np.testing.assert_array_equal(values, everything(other, "test")[name])


@pytest.mark.parametrize(("bounds", "rows", "most"), [([0, 100], 100, 7), ([0, 3, 9, 20], 20, 10)])
def test_chunks_cover_every_row_once(bounds: list[int], rows: int, most: int) -> None:
    chunks = cut(bounds, rows, most)
    covered = [row for start, stop in chunks for row in range(start, stop)]
    assert covered == list(range(rows))
    assert max(stop - start for start, stop in chunks) <= 2 * most


@pytest.mark.parametrize("rows", [0, 1])
def test_chunks_of_little(rows: int) -> None:
    assert cut([0], rows, 10) == [(0, 1)] * rows


def test_a_shuffled_order_has_every_row_once_and_reads_in_turn(jetclass: Any) -> None:
    """In memory for a few chunks only: the same rows, each chunk decoded about once an epoch."""
    whole, streamed = jetclass(), jetclass(chunk_rows=20, cache_GiB=2e-4)
    assert not streamed.samples("train")._is_small
    samples = streamed.samples("train")
    order = samples.order(np.random.default_rng(0))
    assert sorted(order.tolist()) == list(range(len(samples)))
    again = samples.order(np.random.default_rng(0))
    np.testing.assert_array_equal(order, again)
    decoded: list[int] = []
    inner = streamed._read
    streamed._read = lambda chunk: decoded.append(chunk) or inner(chunk)  # type: ignore[method-assign]
    found = [samples.batch(order[start : start + 32]) for start in range(0, len(order), 32)]
    labels = np.concatenate([it["label_B"] for it in found])
    assert len(decoded) <= 1.5 * len(streamed.chunks)
    expected = collections.Counter(everything(whole, "train")["label_B"].tolist())
    assert collections.Counter(labels.tolist()) == expected
    mixed = np.mean([len(set(it["label_B"].tolist())) for it in found])
    assert mixed > 2, "batches are of several files"


def test_a_rank_reads_its_share_of_a_streamed_set(jetclass: Any) -> None:
    data = jetclass(chunk_rows=5, cache_GiB=5e-4)
    assert not data.samples("train")._is_small
    order = data.samples("train").order(np.random.default_rng(0))
    first = data.samples("train")._first_C
    chunk = np.searchsorted(first, order, side="right") - 1
    shares = [set(chunk[: len(chunk) // 2 // 16 * 16][rank::4].tolist()) for rank in range(4)]
    overlap = sum(len(a & b) for n, a in enumerate(shares) for b in shares[n + 1 :])
    assert overlap == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_give_the_same_whatever_workers_and_ranks(jetclass: Any, workers: int) -> None:
    data = jetclass()
    batches = []
    for rank in range(2):
        world = World(rank=rank, size=2)
        loader = Loaders(64, workers, 5, world).training(data.samples("train"))
        loader.batch_sampler.set_epoch(3)
        batches.append([it["weight_B"].numpy() for it in loader])
    alone = Loaders(64, 0, 5, World()).training(data.samples("train"))
    alone.batch_sampler.set_epoch(3)
    for whole, *parts in zip((it["weight_B"].numpy() for it in alone), *batches, strict=True):
        np.testing.assert_array_equal(whole[0::2], parts[0])
        np.testing.assert_array_equal(whole[1::2], parts[1])


def test_rows_of_one_event_are_never_parted_and_folds_cover_all(shared_data: Path) -> None:
    path = shared_data / "hep" / "nano_tt_v12.root"
    settings = {"rows": "Jet", "inputs": ["Jet_pt"], "target": ["Jet_pt<20", "Jet_pt>=20"]}
    tested: set[int] = set()
    for fold in range(4):
        split = {"by": "event", "event": "event", "val": 0.25, "test": 0.25, "fold": fold}
        data = make(path, **settings, split=split)
        parts = [set(it.source_R.tolist()) for it in data.decode(0)]
        assert not parts[0] & parts[1] | parts[1] & parts[2] | parts[0] & parts[2]
        assert not tested & parts[2]
        tested |= parts[2]
    assert tested == set(range(200))


def test_a_split_by_event_is_the_same_wherever_files_are_cut(tmp_path: Path) -> None:
    whole = table()
    write(tmp_path / "whole.root", **whole)
    for number, part in enumerate((slice(0, 130), slice(130, 400))):
        write(tmp_path / f"part{number}.root", **{name: it[part] for name, it in whole.items()})
    split = {"by": "event", "event": "event", **SPLIT}
    one = make(tmp_path / "whole.root", split=split)
    other = make(tmp_path / "part*.root", split=split)
    for name in ("train", "val", "test"):
        for key, values in everything(one, name).items():
            np.testing.assert_array_equal(values, everything(other, name)[key])


def test_files_sorted_by_class_are_split_at_random(shared_data: Path) -> None:
    """dalitzdata.root: all of one class, then all of the other."""
    path = shared_data / "hep" / "dalitzdata.root"
    data = make(path, inputs=["Y1"], target="labels")
    shares = data.survey["weights_SK4"][:, 1, 0] / data.survey["weights_SK4"][:, :, 0].sum(1)
    np.testing.assert_allclose(shares, shares.mean(), atol=0.02)


def test_events_without_an_object_count(shared_data: Path) -> None:
    path = shared_data / "hep" / "uproot-HZZ.root"
    inputs = {"particles": ["Jet_Px"], "flat": ["NMuon"]}
    found = everything(make(path, inputs=inputs, target=["NJet==0", "NJet>0"]))
    assert (found["mask_BP"].sum(1) == 0).sum() == 716 == (found["label_B"] == 0).sum()


def test_constituents_by_reference_are_those_of_the_links(shared_data: Path) -> None:
    """Against a loop over all links, in plain Python."""
    data = make(
        shared_data / "hep" / "pfnano.root",
        tree="Events", rows="FatJet",
        links={"PFCands": {"object": "FatJetPFCands_jetIdx", "item": "FatJetPFCands_pFCandsIdx"}},
        inputs={"particles": ["PFCands_pt"]}, constituents={"length": 500},
        target=["FatJet_pt < 0", "FatJet_pt >= 0"], split={"val": 0.3, "test": 0.3},
    )  # fmt: skip
    columns = Rows(data.recipe, data.tables[0], 0, 10).columns()
    with uproot.open(data.files()[0]) as file:
        names = ["FatJetPFCands_jetIdx", "FatJetPFCands_pFCandsIdx", "PFCands_pt", "FatJet_pt"]
        events = file["Events"].arrays(names)
    expected: list[list[float]] = []
    for event in events:
        mine: list[list[float]] = [[] for _ in event.FatJet_pt]
        for jet, item in zip(event[names[0]], event[names[1]], strict=True):
            mine[jet].append(float(event.PFCands_pt[item]))
        expected += mine
    assert columns.number_R.tolist() == list(map(len, expected))
    assert columns.number_R.sum() == 1076
    np.testing.assert_array_equal(columns.features_NF[:, 0], np.float32(list(chain(*expected))))


def test_reweighting_makes_the_spectrum_of_each_class_flat(tmp_path: Path) -> None:
    columns = table(4000)
    columns["pt"] = np.random.default_rng(1).exponential(100, 4000)
    edges = [0, 50, 100, 150, 200, 1000]
    reweight = {"by": ["pt"], "bins": [edges], "most": 100}
    data = make(write(tmp_path / "a.root", **columns), reweight=reweight, monitor={"pt": "pt"})
    found = everything(data, "train")
    weight = found["weight_B"] * found["factor_B"]
    for label in (0, 1):
        of = found["label_B"] == label
        heights, _ = np.histogram(found["pt_B"][of], edges, weights=weight[of])
        np.testing.assert_allclose(heights, heights.mean(), rtol=1e-6)
    totals = [weight[found["label_B"] == label].sum() for label in (0, 1)]
    assert totals[0] == pytest.approx(totals[1])
    assert np.all(everything(make(tmp_path / "a.root"), "train")["factor_B"] == 1)


def test_a_weight_may_be_missing_in_data_but_no_input(tmp_path: Path) -> None:
    simulated = table(seed=1) | {"weight": np.full(400, -2.0)}
    write(tmp_path / "simulated.root", **simulated)
    write(tmp_path / "data.root", **table(seed=2))
    data = make(tmp_path, weight="weight")
    assert set(everything(data)["weight_B"].tolist()) == {1.0, -2.0}
    warned = "\n".join(data.report().warnings)
    assert "data.root: tree has no weight, as in collision data: its rows weigh 1" in warned
    lacking = {name: it for name, it in table().items() if name != "y"}
    write(tmp_path / "lacking.root", **lacking)
    with pytest.raises(DataError, match=r"lacking.root: tree has no branch 'y'.*data.inputs.flat"):
        make(tmp_path)
    with pytest.raises(DataError, match=r"no branch 'wieght'; did you mean 'weight'.*data.weight"):
        make(tmp_path / "simulated.root", weight="wieght")


def test_sentinels_and_nan_are_the_centre_and_are_reported(tmp_path: Path) -> None:
    columns = table()
    columns["x"][::4], columns["y"][::5] = -999, np.nan
    path = write(tmp_path / "a.root", **columns)
    warned = "\n".join(make(path).report().warnings)
    assert "x is -999 in 2" in warned
    assert "data.sentinels=[-999]" in warned
    assert "y is missing (NaN) in" in warned
    data = make(path, sentinels=[-999])
    assert data.survey["min_F"][0] > -10
    assert np.isnan(everything(data)["flat_BG"][:, 0]).sum() == 100


def test_types_that_differ_are_reported_and_read(tmp_path: Path) -> None:
    for number, dtype in enumerate((np.int32, np.float32, np.bool_)):
        columns = table(seed=number)
        write(tmp_path / f"{number}.root", **columns | {"label": columns["label"].astype(dtype)})
    data = make(tmp_path)
    differing = data.report().facts["differs across files"]
    assert "label: int32_t in 0.root, float in 1.root, bool in 2.root" in differing
    assert set(everything(data)["label_B"].tolist()) == {0, 1}


def test_top_tagging_as_pandas_writes_it(tmp_path: Path) -> None:
    """The layout of its HDF5, made by hand: no pickle is run to read the names of columns."""
    rng, rows, most = np.random.default_rng(0), 50, 6
    number = rng.integers(1, most + 1, rows)
    lists = {name: rng.normal(size=(rows, most)).astype("f4") for name in ("E", "PX", "PY", "PZ")}
    for values in lists.values():
        values[np.arange(most) >= number[:, None]] = 0
    names = [f"{name}_{n}" for n in range(most) for name in lists]
    block = np.stack([lists[name.split("_")[0]][:, int(name.split("_")[1])] for name in names], 1)
    with h5py.File(tmp_path / "test.h5", "w") as file:
        dtype = [
            ("index", "i8"),
            ("values_block_0", "f4", (len(names),)),
            ("values_block_1", "i8", (1,)),
        ]
        records = np.zeros(rows, dtype)
        records["values_block_0"], label = block, rng.integers(0, 2, rows)
        records["values_block_1"] = label[:, None]
        stored = file.create_dataset("table/table", data=records)
        stored.attrs["values_block_0_kind"] = np.bytes_(pickle.dumps(names, 0))
        stored.attrs["values_block_1_kind"] = np.bytes_(pickle.dumps(["is_signal_new"], 0))
    data = make(
        tmp_path / "test.h5", inputs={"particles": ["pt(PX, PY)", "E"]}, target="is_signal_new",
        constituents={"length": 4}, split={"val": 0.2, "test": 0.2},
    )  # fmt: skip
    columns = Rows(data.recipe, data.tables[0], 0, rows).columns()
    np.testing.assert_array_equal(columns.number_R, np.minimum(number, 4))
    np.testing.assert_array_equal(columns.label_R, label)
    kept = np.arange(most) < np.minimum(number, 4)[:, None]
    np.testing.assert_array_equal(columns.features_NF[:, 1], lists["E"][kept])


def test_parquet_with_nulls(tmp_path: Path) -> None:
    columns = table(60)
    x = ak.from_iter([None if n % 7 == 0 else float(v) for n, v in enumerate(columns["x"])])
    lists = ak.from_iter([[1.0, 2.0], None, []] * 20)
    array = ak.zip({**columns, "x": x, "parts": lists}, depth_limit=1)
    ak.to_parquet(array, tmp_path / "a.parquet", row_group_size=16)
    data = make(tmp_path / "a.parquet", inputs={"flat": ["x"], "particles": ["parts"]})
    assert len(data.tables[0].bounds) == 5
    columns_ = Rows(data.recipe, data.tables[0], 10, 50).columns()
    expected = [np.nan if n % 7 == 0 else np.float32(columns["x"][n]) for n in range(10, 50)]
    np.testing.assert_array_equal(columns_.flat_RG[:, 0], expected)
    assert columns_.number_R.tolist() == [[2, 0, 0][n % 3] for n in range(10, 50)]


def bad(tmp_path: Path, case: str) -> None:
    columns = table()
    if case == "one_hot":
        target = ["label >= 0", "label == 1"]
        make(write(tmp_path / "a.root", **columns), target=target).facts()
    if case == "selection":
        make(write(tmp_path / "a.root", **columns), selection="x > 1e9").facts()
    if case == "labels":
        make(write(tmp_path / "a.root", **columns), target=["label==7", "label==8"]).facts()
    if case == "number":
        write(tmp_path / "a.root", **columns | {"label": columns["label"] * 5})
        make(tmp_path / "a.root").facts()
    if case == "sentinel":
        make(write(tmp_path / "a.root", **columns | {"y": np.full(400, -999.0)})).facts()
    if case == "missing":
        make(write(tmp_path / "a.root", **columns | {"y": np.full(400, np.nan)})).facts()
    if case == "weight":
        write(tmp_path / "a.root", **columns | {"w": np.where(columns["x"] > 2, np.nan, 1.0)})
        make(tmp_path / "a.root", weight="w").facts()
    if case in ("jagged", "numbers", "flat"):
        lists = ak.unflatten(np.arange(800.0), np.full(400, 2))
        uneven = ak.unflatten(np.arange(800.0), np.tile([1, 3], 200))
        write(tmp_path / "a.root", **columns, parts=lists, others=uneven)
        inputs = {"jagged": ["x", "parts"], "numbers": {"particles": ["parts", "others"]}}
        make(tmp_path / "a.root", inputs=inputs.get(case, {"particles": ["x"]})).facts()
    if case == "truncated":
        path = write(tmp_path / "a.root", **table(20_000))
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        make(path).facts()
    if case == "text":
        (tmp_path / "a.root").write_text("not ROOT at all")
        make(tmp_path / "a.root").facts()
    if case == "schemas":
        write(tmp_path / "a.root", **columns)
        write(
            tmp_path / "b.root",
            **columns | {"x": ak.unflatten(np.arange(400.0), np.ones(400, int))},
        )
        make(tmp_path).facts()
    if case == "trees":
        with uproot.recreate(tmp_path / "a.root") as file:
            file["one"], file["two"] = columns, columns
        make(tmp_path / "a.root").facts()
    if case == "tree":
        make(write(tmp_path / "a.root", **columns), tree="tre").facts()
    if case == "empty":
        make(write(tmp_path / "a.root", **{n: it[:0] for n, it in columns.items()})).facts()
    if case == "itself":
        derived = {"a": "b + 1", "b": "a + 1"}
        make(write(tmp_path / "a.root", **columns), derived=derived, inputs=["a"])


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (
            "one_hot",
            r"a.root: tree: row \d+ is labelled no and yes; data.target must be true for one",
        ),
        ("selection", r"a.root: tree: data.selection=x > 1e9 passes none of 400 rows"),
        ("labels", r"a.root: tree: data.target is true of none of 400 rows"),
        (
            "number",
            r"a.root: tree: data.target=label has the values 5, but data.classes are numbers 0 to",
        ),
        (
            "sentinel",
            r"data.inputs: y is -999, a sentinel, everywhere in the training split .*leave it",
        ),
        ("missing", r"data.inputs: y is missing everywhere in the training split"),
        ("weight", r"a.root: tree: data.weight=w is nan in row \d+"),
        (
            "jagged",
            r"a.root: tree: data.inputs.flat: parts has a list a row where one number is needed",
        ),
        ("numbers", r"a.root: tree: parts and others have other numbers of constituents"),
        (
            "flat",
            r"a.root: tree: data.inputs.particles: x has one value a row, no list: move it to",
        ),
        ("truncated", r"a.root.*cannot be read \(.*cut short, damaged or of another format"),
        ("text", r"a.root: cannot be read \(.*cut short, damaged or of another format"),
        (
            "schemas",
            r"b.root: tree: data.inputs.flat: x has a list a row where one number is needed",
        ),
        (
            "trees",
            r"a.root: holds several trees: one \(400 rows\), two \(400 rows\); choose with data.tr",
        ),
        ("tree", r"a.root: has no tree 'tre'; did you mean 'tree'"),
        ("empty", r"a.root: tree: no rows; give data.path files that have some"),
        ("itself", r"data.derived.\w is defined by itself"),
    ],
)
def test_bad_input_is_one_message(tmp_path: Path, case: str, said: str) -> None:
    with pytest.raises(ScadlError, match=said) as refused:
        bad(tmp_path, case)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"classes": ["one"]}, "data.classes"),
        ({"classes": ["a", "a"]}, "all different"),
        ({"target": ["label"], "classes": ["a", "b"]}, "1 conditions for 2 data.classes"),
        ({"inputs": {"partciles": ["x"]}}, "data.inputs: partciles is unknown"),
        ({"inputs": []}, "data.inputs"),
        ({"constituents": {"lenght": 5}}, "data.constituents.lenght is unknown"),
        ({"split": {"by": "magic"}}, "data.split.by=magic"),
        ({"split": {"vla": 0.1}}, "data.split.vla is unknown; did you mean 'val'"),
        ({"split": {"val": 0.6, "test": 0.5}}, "must be shares"),
        ({"split": {"by": "event"}}, "data.split.event"),
        ({"standardise": "quantile"}, "did you mean 'quantiles'"),
        ({"reweight": {"by": ["x"], "bins": [[2, 1]]}}, "rising edges"),
        ({"links": {"P": {"object": "a"}}}, "data.links.P: expected"),
        ({"rows": "Jet"}, "data.rows=Jet: no input is of it"),
        ({"inputs": ["lgo(x)"]}, "data.inputs.flat: 'lgo.x.'.*did you mean 'log'"),
        ({"selection": "x.__class__"}, "data.selection: .*not allowed"),
    ],
)
def test_settings_that_do_not_fit_together(
    tmp_path: Path, other: dict[str, Any], said: str
) -> None:
    path = write(tmp_path / "a.root", **table(50))
    with pytest.raises(ConfigError, match=said):
        make(path, **other).facts()


def test_statistics_are_kept_until_something_changes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.root", **table())
    one = make(path, statistics=str(tmp_path / "kept"))
    first = one.facts()
    again = make(path, statistics=str(tmp_path / "kept"))
    again._read = lambda chunk: pytest.fail("was read again")  # type: ignore[method-assign]
    assert again.facts() == first
    write(path, **table(seed=9))
    assert make(path, statistics=str(tmp_path / "kept")).facts() != first


def test_the_sample_depends_on_its_seed_alone(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        write_sample(tmp_path / name, 40, 8, classes=("QCD", "Tbqq"), seed=seed)
    found = [uproot.open(tmp_path / name / "train" / "TTBar_000.root")["tree"]["jet_pt"].array()
             for name in "abc"]  # fmt: skip
    assert ak.array_equal(found[0], found[1])
    assert not ak.array_equal(found[0], found[2])
    for name, said in (("classes", "did you mean 'Hbb'"), ("format", "there is: rntuple, ttree")):
        with pytest.raises(ConfigError, match=said):
            write_sample(tmp_path / "d", **{name: ["Hbbb"] if name == "classes" else "csv"})
