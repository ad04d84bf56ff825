"""The rule to beat: boosted trees on the numbers of a whole jet or event."""

from __future__ import annotations

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from apps.hep.metrics import Scored, accuracy, pair_aucs
from scadl_core.workflow.contracts import Source

BLOCK_ROWS = 8192
MOST_ROWS = 500_000  # that the trees learn from


def score(source: Source, max_iter: int = 60) -> dict[str, float]:
    """``auc_macro``, ``accuracy`` and the AUC of each pair on the test split.

    The trees see the flat inputs and, where there are any, the number of constituents, transverse
    momentum and mass. In training negative weights count by their size: a tree cannot use them.

    Args:
        source: The data.
        max_iter: Trees a class.
    """
    classes = source.facts()["classes"]
    trees = HistGradientBoostingClassifier(max_iter=max_iter, early_stopping=False, random_state=0)
    inputs_RI, rows = _table(source, "train", len(classes))
    trees.fit(inputs_RI, rows.label_R, np.abs(rows.weight_R))
    inputs_RI, rows = _table(source, "test", len(classes))
    rows.probability_RK[:, trees.classes_] = trees.predict_proba(inputs_RI)
    return {"accuracy": accuracy(rows), **pair_aucs(rows, classes)}


def _table(source: Source, split: str, classes: int) -> tuple[np.ndarray, Scored]:
    samples = source.samples(split)
    inputs, kept = [], []
    chosen = np.arange(0, len(samples), -(-len(samples) // MOST_ROWS) if split == "train" else 1)
    for start in range(0, len(chosen), BLOCK_ROWS):
        batch = samples.batch(chosen[start : start + BLOCK_ROWS])
        number_B = batch["mask_BP"].sum(1)
        columns = [number_B, batch["pt_B"], batch["mass_B"], *batch["flat_BG"].T]
        inputs.append(np.stack(columns, 1).astype(np.float64))
        kept.append([batch[name] for name in ("label_B", "weight_B", "pt_B", "mass_B")])
    label_R, weight_R, pt_R, mass_R = (np.concatenate(part) for part in zip(*kept, strict=True))
    table, nothing_RK = np.concatenate(inputs), np.zeros((len(label_R), classes))
    table[:, np.isnan(table).all(0)] = 0
    return table, Scored(nothing_RK, label_R, weight_R, pt_R, mass_R)
