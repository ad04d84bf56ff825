"""From words to a configuration: what every override does, and what every mistake is told."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from scadl_core.config.apps import find_app
from scadl_core.config.compose import (
    choices,
    compose_run,
    each_choice,
    override_stored,
    parse,
    require,
)
from scadl_core.config.keys import leaves
from scadl_core.errors import ConfigError


def compose(*overrides: str, config_dir: Path | None = None) -> Any:
    return compose_run(find_app("climate"), overrides, config_dir)


MISTAKES: list[tuple[Sequence[str], str]] = [
    (["optimizer.lrr=1"], "unknown key 'optimizer.lrr'; did you mean 'optimizer.lr'?"),
    (["optimiser.lr=1"], "unknown key 'optimiser.lr'; did you mean 'optimizer.lr'?"),
    (["optimiser=sgd"], "unknown key 'optimiser'; did you mean 'optimizer'?"),
    (["lr=1"], "unknown key 'lr'; did you mean 'optimizer.lr'?"),
    (["+optimizer.lrr=1"], "unknown key 'optimizer.lrr'; did you mean 'lr'? (torch.optim.AdamW)"),
    (["++optimizer.lrr=1"], "unknown key 'optimizer.lrr'; did you mean 'lr'? (torch.optim.AdamW)"),
    (["~optimizer.lrr"], "unknown key 'optimizer.lrr'; did you mean 'optimizer.lr'?"),
    (["+sed=1"], "unknown key '+sed': nothing reads it; did you mean 'seed'?"),
    (["+run.dirr=x"], "unknown key '+run.dirr': nothing reads it; did you mean 'run.dir'?"),
    (["model=unett"], "model=unett: no such choice; did you mean 'unet' or 'cgnet'?"),
    (["optimizer=null"], "optimizer=null: no such choice; there is: adamw, kfac, muon, sgd, soap"),
    (["-m", "optimizer=sgd,adm"], "optimizer=adm: no such choice; did you mean 'adamw'?"),
    (["seed"], "cannot read 'seed': expected key=value, such as optimizer=sgd or seed=1"),
    (
        ["optimizer=sgd", "optimizer.momentum=abc"],
        "optimizer.momentum: expected a number (such as 0.9), got 'abc'",
    ),
    (
        ["trainer.accumulate_grad_batches=2.5"],
        "trainer.accumulate_grad_batches: expected a whole number (such as 1), got 2.5",
    ),
    (["seed=true"], "seed: expected a whole number (such as 0), got True"),
    (
        ["predict.probabilities=3"],
        "predict.probabilities: expected true or false (such as True), got 3",
    ),
    (["data.thresholds=3"], "data.thresholds: expected a list (such as []), got 3"),
    (
        ["task.loss={a: 1}"],
        "task.loss: expected a text (such as 'cross_entropy+jaccard'), got {'a': 1}",
    ),
    (
        ["data.split=4"],
        "data.split: expected a mapping (such as {'by': 'folder', 'val': 0.15, 'test': 0.2, "
        "'gap': 0}), "
        "got 4",
    ),
    (
        ["data.split={by: time, vall: 0.1}"],
        "unknown key 'data.split.vall'; did you mean 'data.split.val'?",
    ),
    (["resume=atuo"], "resume=atuo: no such choice; did you mean 'auto'?"),
    (["split=tset"], "split=tset: no such choice; did you mean 'test'?"),
    (["data.path=${nowhere}"], "Interpolation key 'nowhere' not found"),
    (
        ["task._target_=apps.climate.task.Segmentatio"],
        "task._target_: there is no 'apps.climate.task.Segmentatio'",
    ),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES, ids=[" ".join(w) for w, _ in MISTAKES])
def test_every_mistake_is_one_line(words: Sequence[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose(*(word for word in words if word != "-m"))
    assert str(caught.value) == message


def test_what_does_not_parse_is_said_in_one_line() -> None:
    with pytest.raises(ConfigError) as caught:
        compose("optimizer.lr=[1")
    assert str(caught.value).startswith("cannot read the overrides (")
    assert str(caught.value).endswith("twice: 'data.path=\"~/my data\"'")
    assert "\n" not in str(caught.value)


def test_missing_values_are_listed_together() -> None:
    config = compose("data=netcdf", "data.target=null")
    with pytest.raises(ConfigError) as caught:
        require(config)
    assert str(caught.value) == (
        "missing: data.classes, data.inputs, data.path; "
        "add data.classes=... data.inputs=... data.path=..."
    )
    require(config, "model", "trainer")


def test_values_reach_their_place() -> None:
    config = compose(
        "optimizer=sgd",
        "optimizer.lr=1",  # a whole number is a number
        "++optimizer.momentum=0.5",
        "+optimizer.dampening=0.1",  # an argument of torch.optim.SGD
        "~optimizer.nesterov",
        "data.split={by: time, val: 0.3}",
        "data.path=[a.nc, b.nc]",
        "model.width=8",
        "seed=0",
        "+trainer.max_time={hours: 1}",
    )
    assert OmegaConf.to_container(config.optimizer) == {
        "_target_": "torch.optim.SGD",
        "_partial_": True,
        "lr": 1,
        "momentum": 0.5,
        "dampening": 0.1,
        "weight_decay": 0.0001,
    }
    assert config.data.split == {"by": "time", "val": 0.3, "test": 0.2, "gap": 0}
    assert config.data.path == ["a.nc", "b.nc"]
    assert (config.model.width, config.seed) == (8, 0)
    assert config.trainer.max_time == {"hours": 1}


def test_deleting_a_part_and_adding_an_object_of_ones_own() -> None:
    config = compose(
        "~schedule", "+callbacks.timer={_target_: lightning.pytorch.callbacks.Timer, duration: 1}"
    )
    assert "schedule" not in config
    assert config.callbacks.timer.duration == 1


def test_of_a_sweep_the_first_choice_is_composed_and_all_are_checked() -> None:
    config = compose(
        "seed=3,4", "optimizer=sgd,adamw", "optimizer.lr=choice(0.5,0.1)", "model=glob(*)"
    )
    assert (config.seed, config.optimizer._target_, config.optimizer.lr) == (
        3,
        "torch.optim.SGD",
        0.5,
    )
    assert config.model._target_ == "apps.climate.model.CGNet"
    assert compose("seed=range(5,8)").seed == 5
    [override] = parse(["seed=4"])
    assert each_choice(override) == [override]
    assert compose("optimizer.lr=interval(0.1,0.5)").optimizer.lr == 0.1
    for words, message in (
        ("sed=1,2", "unknown key 'sed'; did you mean 'seed'"),
        ("seed=1,x", "seed: expected a whole number"),
        ("optimizer.lr=0.1,inf", "optimizer.lr: expected a number"),
    ):
        with pytest.raises(ConfigError, match=message):
            compose(words)


def test_a_folder_of_ones_own_comes_first(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    page = "defaults: [climatenet, _self_]\npath: /somewhere\nclasses: [a, b]\n"
    (tmp_path / "data" / "mine.yaml").write_text(page)
    (tmp_path / "optimizer").mkdir()
    (tmp_path / "optimizer" / "sgd.yaml").write_text(
        "_target_: torch.optim.SGD\n_partial_: true\nlr: 7.0\n"
    )
    config = compose("data=mine", "optimizer=sgd", config_dir=tmp_path)
    assert (config.data.path, config.data.target, config.data.classes) == (
        "/somewhere",
        "LABELS",
        ["a", "b"],
    )
    assert config.optimizer.lr == 7.0
    assert compose("optimizer=sgd").optimizer.lr < 1  # and is forgotten again
    with pytest.raises(ConfigError, match="no such choice"):
        compose("data=mine")


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        compose(config_dir=tmp_path / "nowhere")
    assert str(caught.value) == f"--config-dir {tmp_path / 'nowhere'}: no such folder"


def test_choices_are_those_of_the_folders() -> None:
    root = Path(__file__).resolve().parents[2]
    for group, folder in (("optimizer", "configs"), ("model", "apps/climate/configs")):
        there = sorted(path.stem for path in (root / folder / group).glob("*.yaml"))
        assert choices(find_app("climate"), group) == there


def test_leaves_are_all_full_keys() -> None:
    config = OmegaConf.create({"a": {"b": 1, "c": {"d": None}}, "e": "???", "f": [1]})
    assert list(leaves(config)) == ["a", "a.b", "a.c", "a.c.d", "e", "f"]


def test_overrides_of_a_stored_configuration() -> None:
    stored = compose("optimizer.lr=0.5", "data.path=/then")
    app = find_app("climate")
    config = override_stored(stored, app, ["data.path=/now", "data.split={by: time}", "split=val"])
    assert (config.data.path, config.split, config.optimizer.lr) == ("/now", "val", 0.5)
    assert config.data.split == {"by": "time", "val": 0.15, "test": 0.2, "gap": 0}
    replaced = override_stored(stored, app, ["data=netcdf"])
    assert OmegaConf.missing_keys(replaced) == {
        f"data.{name}" for name in ("path", "inputs", "target", "classes")
    }
    for words, message in (
        (["data.pth=x"], "unknown key 'data.pth'; did you mean 'data.path'?"),
        (["data=nitcdf"], "data=nitcdf: no such choice; did you mean 'netcdf'?"),
        (["optimizer.lr=x"], "optimizer.lr: expected a number (such as 0.5), got 'x'"),
        (["split=tst"], "split=tst: no such choice; did you mean 'test'?"),
    ):
        with pytest.raises(ConfigError) as caught:
            override_stored(stored, app, words)
        assert str(caught.value) == message
    assert stored.data.path == "/then"


def test_roles_of_rules_are_keys_like_others() -> None:
    words = ["data=reanalysis", "data.path=/x", "data.inputs=[a]"]
    config = compose(*words, "data.labeller.roles={moisture: q}", "data.labeller.roles.pressure=p")
    assert (config.data.labeller.roles.moisture, config.data.labeller.roles.pressure) == ("q", "p")
    with pytest.raises(ConfigError, match=r"unknown key .*did you mean '.*roles.moisture'"):
        compose(*words, "data.labeller.roles.moistur=q")


def test_of_paths_one_or_several_may_be_given() -> None:
    app = find_app("climate")
    for before, after in (("[/a, /b]", "/c"), ("/c", "[/a, /b]")):
        stored = compose(f"data.path={before}")
        now = override_stored(stored, app, [f"data.path={after}"])
        assert now.data.path == compose(f"data.path={after}").data.path
    with pytest.raises(ConfigError, match=r"data\.inputs: expected a list .*, got None"):
        compose("data.inputs=null")
