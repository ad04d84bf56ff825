"""The door between configuration and objects: who may pass, and what the others are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from scadl_core.config.build import build, check_targets, locate, targets
from scadl_core.errors import ConfigError, DataError


def config(allow: list[str] | None = None, **part: Any) -> DictConfig:
    return OmegaConf.create({"app": "climate", "build": {"allow": allow or []}, "part": part})


def message(function: Callable[..., Any], *arguments: Any, **named: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        function(*arguments, **named)
    return str(caught.value)


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "builtins.eval",
        "numpy.save",
        "torchvision.models.resnet18",  # begins like a trusted name
        "torch.os.system",
        "torch.utils.collect_env.subprocess.Popen",
        "torch.load",
        "torch.hub.load",
        "torch.multiprocessing.spawn",
        "scadl_core.record.provenance.subprocess.run",
        "scadl_core.files.os.system",
        "scadl_core.config.build.pydoc.locate",
        "apps.hep.model.Net",  # another app
    ],
)
def test_what_could_run_foreign_code_is_refused(target: str) -> None:
    text = message(build, config(_target_=target), "part")
    assert text.startswith(f"part._target_: {target!r} is ") or "outside the packages" in text
    assert "if you trust it add build.allow=[" in text


@pytest.mark.parametrize(
    "nested",
    [
        {"layers": [{"_target_": "os.system", "command": "true"}]},
        {"deep": {"er": {"_target_": "os.system"}}},
        {"_args_": [{"_target_": "os.system"}]},
        {"inner": {"_target_": "${alias}"}},
    ],
)
def test_nested_targets_are_checked_too(nested: dict[str, Any]) -> None:
    node = OmegaConf.create({"alias": "os.system", "part": {"_target_": "torch.nn.Module"}})
    node.part.update(nested)
    assert "'os.system' is outside" in message(check_targets, node.part, "part", [])


def test_targets_are_found_with_their_keys() -> None:
    node = OmegaConf.create(
        {"_target_": "a", "x": {"y": [{"_target_": "b"}, 1]}, "gone": "???", "none": None}
    )
    assert [(key, t["_target_"]) for key, t in targets(node, "part")] == [
        ("part", "a"),
        ("part.x.y[0]", "b"),
    ]


def test_classes_of_trusted_packages_and_all_of_the_app_are_taken() -> None:
    assert isinstance(
        build(config(_target_="torch.nn.Linear", in_features=2, out_features=3), "part"),
        torch.nn.Linear,
    )
    network = build(config(_target_="apps.climate.model.UNet", width=2), "part", in_channels=1,
                    num_classes=2)  # fmt: skip
    assert network.head.out_channels == 2
    assert locate("apps.climate.sample.season", "part", ["apps.climate"]).__name__ == "season"


def test_a_trusted_package_of_ones_own_is_taken() -> None:
    refused = message(build, config(_target_="fractions.Fraction"), "part")
    assert refused.endswith("if you trust it add build.allow=[fractions]")
    assert build(config(["fractions"], _target_="fractions.Fraction"), "part", numerator=3) == 3


def test_names_that_lead_nowhere() -> None:
    assert message(locate, "torch.optim.Adan", "optimizer", []) == (
        "optimizer._target_: there is no 'torch.optim.Adan'"
    )


def test_an_unknown_argument_is_answered_with_the_closest() -> None:
    text = message(build, config(_target_="torch.optim.SGD", _partial_=True, momentun=0.9), "part")
    assert text == "unknown key 'part.momentun'; did you mean 'momentum'? (torch.optim.SGD)"


def test_what_a_constructor_refuses_is_named_by_its_key() -> None:
    part = config(_target_="torch.nn.Linear", in_features="two", out_features=3)
    assert message(build, part, "part").startswith("part: torch.nn.Linear refused its arguments:")


def test_a_partial_names_its_key_when_it_is_called() -> None:
    factory = build(config(_target_="torch.optim.SGD", _partial_=True, lr=-1.0), "part")
    assert factory.keywords == {"lr": -1.0}
    assert message(factory, [torch.zeros(1)]) == (
        "part: torch.optim.SGD refused its arguments: Invalid learning rate: -1.0"
    )


def test_a_mistake_that_names_itself_is_passed_on() -> None:
    part = config(_target_="apps.climate.model.UNet", norm="grop")
    assert message(build, part, "part", in_channels=1, num_classes=2).startswith("model.norm:")


def test_an_error_inside_a_called_function_is_not_swallowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(path: str) -> None:
        raise ValueError("a defect")

    def mistaken(path: str) -> None:
        raise DataError("x.nc is broken")

    broken.__module__ = mistaken.__module__ = "apps.climate.sample"
    for function, kind, text in ((broken, ValueError, "a defect"), (mistaken, DataError, "x.nc")):
        monkeypatch.setattr("apps.climate.sample.write_sample", function)
        with pytest.raises(kind, match=text):
            build(config(_target_="apps.climate.sample.write_sample", path="x"), "part")


def test_values_are_plain_python_not_omegaconf() -> None:
    part = config(_target_="torch.optim.SGD", _partial_=True, betas={"a": [1, 2]})
    part.part.pop("betas")
    part.part.lr = 0.1
    assert type(build(part, "part").keywords["lr"]) is float
    box = build(
        config(["collections"], _target_="collections.OrderedDict", x=[1, {"y": 2}]), "part"
    )
    assert type(box["x"]) is list
    assert type(box["x"][1]) is dict


@pytest.mark.parametrize(
    "target",
    [
        "torch.distributed.elastic.multiprocessing.subprocess_handler.SubprocessHandler",
        "scadl_core.cli.main",
        "scadl_core.files.write_text",
    ],
)
def test_what_is_no_part_of_a_training_is_not_made(target: str) -> None:
    """Of a trusted package, but it would start a process or write a file."""
    assert f"part._target_: '{target}' is no" in message(build, config(_target_=target), "part")
