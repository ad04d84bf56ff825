"""What the backward pass of an operation needs of the tensors that it saves.

Which operation saves a tensor is seen by a torch-function mode; an operation that is not listed
gets exactly what it saved: derivatives that subtract, compare or exponentiate saved values (losses,
extrema, variances) make of a small relative error a large one.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Need(Enum):
    """How much of a saved float tensor the backward pass reads."""

    SHAPE = "shape"  # its shape alone
    SIGN = "sign"  # where it is above zero
    MASK = "mask"  # where it is zero; the rest is one number
    EXACT = "exact"  # every bit
    SUM = "sum"  # values in a sum of products with the output's gradient
    NORM = "norm"  # the input of a normalisation, whose statistics are saved apart
    VALUE = "value"  # values that scale the gradient element by element
    INTEGER = "integer"  # indices and masks, which are packed without loss


class Operation(NamedTuple):
    """An operation.

    Attributes:
        need: Of its saved float tensors.
        curvature: For VALUE: the largest change of the local derivative with the saved value; None
            where a relative error is what counts.
    """

    need: Need
    curvature: float | None = None


UNKNOWN = Operation(Need.EXACT)
_POOLS = ("max_pool", "avg_pool", "adaptive_max_pool", "adaptive_avg_pool")
ATTENTION = "scaled_dot_product_attention"
_SUMS = ("linear", "matmul", "mm", "bmm", "addmm", "addbmm", "baddbmm", "mv", "einsum",
         "__matmul__", "__rmatmul__", "bilinear", ATTENTION)  # fmt: skip
_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d",
                 "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")  # fmt: skip
_NORMS = ("batch_norm", "group_norm", "layer_norm", "instance_norm")
# Saved values are factors of the derivative: its relative error is theirs, or twice theirs.
_FACTORS = ("mul", "mul_", "multiply", "__mul__", "__rmul__", "__imul__", "div", "div_", "divide",
            "true_divide", "__truediv__", "__rtruediv__", "__itruediv__", "exp", "sqrt", "square",
            "pow", "__pow__", "log", "abs", "absolute", "prelu", "addcmul")  # fmt: skip
_EXACT = ("softmax", "log_softmax", "softmin", "cross_entropy", "nll_loss", "ctc_loss", "lstm",
          "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell")  # fmt: skip
# Largest |f''|: Hendrycks and Gimpel 2016 (2 phi(0) for GELU), 1/2 for SiLU at 0, 1 for ELU. Of
# tanh and sigmoid the output is saved: d(1 - y^2)/dy and d(y - y^2)/dy.
_CURVED = {
    "gelu": 0.7979,
    "silu": 0.5,
    "elu": 1.0,
    "tanh": 2.0,
    "sigmoid": 1.0,
    "sin": 1.0,
    "cos": 1.0,
    "mish": 0.6443,
}

OPERATIONS: dict[str, Operation] = {
    **{f"{p}{d}d{end}": Operation(Need.SHAPE)
       for p in _POOLS for d in (1, 2, 3) for end in ("", "_with_indices")},
    **{name: Operation(Need.SIGN) for name in ("relu", "relu_", "leaky_relu", "leaky_relu_")},
    **{f"{name}{n}": Operation(Need.MASK)
       for name in ("dropout", "feature_dropout") for n in ("", "1d", "2d", "3d", "_")},
    **{name: Operation(Need.EXACT) for name in _EXACT},
    **{name: Operation(Need.VALUE) for name in _FACTORS},
    **{name: Operation(Need.SUM) for name in (*_SUMS, *_CONVOLUTIONS)},
    **{name: Operation(Need.NORM) for name in _NORMS},
    **{name: Operation(Need.VALUE, bend) for name, bend in _CURVED.items()},
    **{f"{name}_": Operation(Need.VALUE, bend) for name, bend in _CURVED.items()},
}  # fmt: skip


class Call(NamedTuple):
    """A call of an operation, as the torch-function mode sees it.

    Attributes:
        name: Of the operation.
        operation: What its backward pass needs.
        args: Positional arguments.
        kwargs: The others.
    """

    name: str
    operation: Operation
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def argument(self, index: int, name: str, default: Any = None) -> Any:
        """An argument given by position or by name."""
        return self.args[index] if index < len(self.args) else self.kwargs.get(name, default)

    @property
    def weight(self) -> Tensor | None:
        """The tensor whose gradient the saved input goes into."""
        if self.name == "batch_norm" or self.name == "instance_norm":
            return self._tensor(self.argument(3, "weight"))
        if self.operation.need is Need.NORM:
            return self._tensor(self.argument(2, "weight"))
        if self.name == "linear" or self.name in _CONVOLUTIONS:
            return self._tensor(self.argument(1, "weight"))
        return None

    @staticmethod
    def _tensor(value: Any) -> Tensor | None:
        return value if isinstance(value, Tensor) else None

    def partner(self, saved: Tensor) -> Tensor | None:
        """The tensor into whose gradient errors of ``saved`` go first."""
        if self.weight is not None or self.operation.need is Need.NORM:
            return None if self.weight is None or _is_view(saved, self.weight) else self.weight
        if self.name not in ("matmul", "bmm", "mm", "__matmul__") or len(self.args) != 2:
            return None
        same = [_is_view(saved, operand) for operand in self.args]
        return self.args[same.index(False)] if sum(same) == 1 else None


def _is_view(one: Tensor, other: Tensor) -> bool:
    return bool(one.untyped_storage()._cdata == other.untyped_storage()._cdata)


NOWHERE = Call("", UNKNOWN, (), {})


def need_of(call: Call, saved: Tensor) -> Need:
    """What is needed of a tensor that a call saves."""
    if not saved.is_floating_point():
        return Need.INTEGER
    # A normalisation's statistics, and the logarithms of the denominators of attention's softmax.
    has_more = call.operation.need is Need.NORM or call.name == ATTENTION
    if has_more and saved.ndim != call.argument(0, "input", call.kwargs.get("query")).ndim:
        return Need.EXACT
    if call.operation.need is Need.NORM and saved.numel() != call.argument(0, "input").numel():
        return Need.EXACT
    # A weight of another network, or one computed from parameters: its errors would go into the
    # gradient of the input, which tells of no bound.
    if call.operation.need is Need.SUM and call.weight is not None and _is_view(saved, call.weight):
        return Need.EXACT
    if call.name in ("pow", "__pow__"):
        exponent = call.argument(1, "exponent")
        is_mild = isinstance(exponent, int | float) and 0 <= exponent <= 2
        return Need.VALUE if is_mild else Need.EXACT
    if call.name in ("elu", "elu_") and call.argument(1, "alpha", 1.0) != 1:
        return Need.EXACT  # its derivative jumps at zero
    return call.operation.need


def ceiling(call: Call, saved: Tensor, fraction: float) -> float:
    """A bound for what attention saves. An error of a logit is a relative one of all probabilities:
    independent errors uniform in [-eps, eps] of a query of D values change its logits by
    ``eps / sqrt(3) |key| / sqrt(D)``, keys likewise. Values and outputs are subtracted from each
    other in the gradient of the logits.

    Args:
        call: The operation.
        saved: What it saved.
        fraction: That a logit may be off by; each of the four may make half of the error.

    Returns:
        The bound; infinite for other operations.
    """
    if call.name != ATTENTION:
        return math.inf
    query, key = call.argument(0, "query"), call.argument(1, "key")
    unit = math.sqrt(3) * fraction / 2
    for mine, other in ((query, key), (key, query)):
        if _is_view(saved, mine) and saved.data_ptr() == mine.data_ptr():
            scale = call.kwargs.get("scale") or query.shape[-1] ** -0.5
            longest = float(torch.linalg.vector_norm(other.detach().float(), dim=-1).max())
            return unit / (scale * longest) if longest > 0 else math.inf
    norm = float(torch.linalg.vector_norm(saved.detach().float()))
    return unit * norm / math.sqrt(saved.numel())


def name_of(function: Any) -> str:
    """The name by which an operation is looked up."""
    return str(getattr(function, "__name__", ""))


def in_checkpoint(frame: Any) -> bool:
    """Whether a pack came from :func:`torch.utils.checkpoint.checkpoint`, which recomputes from
    what it saves.
    """
    home = torch.utils.checkpoint.__file__
    for _ in range(6):
        if frame is None:
            return False
        if frame.f_code.co_filename == home:
            return True
        frame = frame.f_back
    return False
