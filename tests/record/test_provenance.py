"""Where a result comes from."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

import scadl_core
from scadl_core.comm import World
from scadl_core.record.provenance import describe, fingerprints, git_state, versions

MIB = 1 << 20


def test_fingerprints_notice_every_byte_of_a_small_file(tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    path.write_bytes(bytes(1000))
    [before] = fingerprints([path]).values()
    expected = hashlib.blake2b(b"1000" + bytes(1000) + bytes(1000), digest_size=8).hexdigest()
    assert before == expected
    for place in (0, 500, 999):
        changed = bytearray(1000)
        changed[place] = 1
        path.write_bytes(changed)
        assert fingerprints([path])[str(path)] != before


def test_of_a_large_file_size_begin_and_end_count(tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    content = bytearray(3 * MIB)

    def digest() -> str:
        path.write_bytes(content)
        return fingerprints([path])[str(path)]

    seen = [digest()]
    for place in (MIB - 1, 2 * MIB):
        content[place] = 1
        seen.append(digest())
    content.append(0)
    seen.append(digest())
    assert len(set(seen)) == 4


def test_a_folder_is_one_fingerprint_of_names_and_contents(tmp_path: Path) -> None:
    store = tmp_path / "x.zarr"
    (store / "a").mkdir(parents=True)
    (store / "a" / "0").write_text("1")
    (store / "b").write_text("2")
    first = fingerprints([store])
    assert list(first) == [str(store)]
    (store / "b").rename(store / "c")
    assert fingerprints([store]) != first


def test_the_description_is_json_and_says_who_and_with_what(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("SLURM_SECRET", "no")
    about = json.loads(json.dumps(describe(World(), 3, "scadl train", {"x.nc": "11"})))
    assert (about["command"], about["seed"], about["data"]) == ("scadl train", 3, {"x.nc": "11"})
    assert about["slurm"] == {"SLURM_JOB_ID": "77"}
    assert about["versions"]["scadl"] == scadl_core.__version__
    assert {"torch", "lightning", "hydra-core", "numpy", "python"} <= about["versions"].keys()
    assert len(about["ranks"]) == 1
    assert about["time"].endswith("+00:00")


def test_only_installed_packages_have_a_version() -> None:
    import torch

    assert versions()["torch"] == torch.__version__
    assert all(versions().values())


def test_the_commit_is_that_of_git() -> None:
    root = Path(scadl_core.__file__).resolve().parents[1]
    if not (root / ".git").exists():
        assert git_state() == {}
        return
    sha = subprocess.run(
        ["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout
    assert git_state()["sha"] == sha.strip()


def test_without_git_there_is_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert git_state() == {}
