"""A plan: how a run spends memory, network and processor. Nothing of it changes the model."""

from __future__ import annotations

from dataclasses import dataclass

COMMS = ("off", "bf16", "quantised", "compressed", "powersgd")
BUCKET_MIB = 25.0  # of DistributedDataParallel


def parse_codec(codec: str) -> tuple[str, float | None]:
    """The two parts of :attr:`Plan.codec`."""
    name, _, value = codec.partition(" ")
    return name, float(value) if value else None


@dataclass(frozen=True)
class Curvature:
    """How K-FAC is spread over ranks; see :class:`scadl_core.optim.KFAC`.

    Attributes:
        fraction: Of all ranks, those that precondition a layer.
        local_factors: Whether no factor is sent.
        compression: None, or eps of the factors that are sent.
        factor_period: Steps between statistics.
        inverse_period: Steps between inversions.
    """

    fraction: float = 1.0
    local_factors: bool = False
    compression: float | None = None
    factor_period: int = 5
    inverse_period: int = 10

    def overrides(self) -> list[str]:
        """As they are typed behind ``optimizer=kfac``; all, so that none is left of another plan.

        They are added or changed (``++``), since the page of K-FAC names but some of them.
        """
        compression = "null" if self.compression is None else f"{self.compression:g}"
        return [
            f"++optimizer.fraction={self.fraction:.12g}",
            f"++optimizer.local_factors={str(self.local_factors).lower()}",
            f"++optimizer.compression={compression}",
            f"optimizer.factor_period={self.factor_period}",
            f"optimizer.inverse_period={self.inverse_period}",
        ]


@dataclass(frozen=True)
class Plan:
    """One way to take a step.

    Attributes:
        comm: How gradients are averaged, one of ``COMMS``.
        value: Of ``compressed`` the bound, of ``powersgd`` the rank.
        bucket: MiB of gradients that are exchanged together.
        accumulation: Micro-batches a step.
        adaptive: Whether activations are kept compressed (``memory=adaptive``).
        kfac: None is another optimizer.
    """

    comm: str = "off"
    value: float | None = None
    bucket: float = BUCKET_MIB
    accumulation: int = 1
    adaptive: bool = False
    kfac: Curvature | None = None

    @property
    def codec(self) -> str:
        """Of gradients, as in :attr:`scadl_core.tuning.network.Network.codecs`."""
        return self.comm if self.value is None else f"{self.comm} {self.value:g}"

    def changes(self, base: Plan) -> int:
        """How many choices differ: of two plans that take the same time, fewer are better."""
        names = ("codec", "bucket", "accumulation", "adaptive", "kfac")
        return sum(getattr(self, name) != getattr(base, name) for name in names)

    def __str__(self) -> str:
        words = [f"comm {self.codec}"]
        words += [f"bucket {self.bucket:g} MiB"] * (self.bucket != BUCKET_MIB)
        words += [f"accumulation {self.accumulation}"] * (self.accumulation > 1)
        words += ["memory adaptive"] * self.adaptive
        if self.kfac is not None:
            kfac = self.kfac
            words.append(f"K-FAC {kfac.fraction:.3g} {kfac.factor_period}/{kfac.inverse_period}")
            words += ["local factors"] * kfac.local_factors
            words += [f"factors {kfac.compression}"] * (kfac.compression is not None)
        return ", ".join(words)

    def overrides(self, base: Plan, batch_size: int) -> list[str]:
        """Hydra overrides that make the plan out of another one.

        Args:
            base: What is configured.
            batch_size: Samples a step over all ranks and micro-batches together.
        """
        found = []
        if self.codec != base.codec:
            found.append(f"comm={'off' if self.comm == 'off' else self.comm}")
            if self.value is not None:
                name = {"compressed": "bound", "powersgd": "rank"}[self.comm]
                found.append(f"comm.{name}={self.value:g}")
        if self.bucket != base.bucket:
            found.append(f"solver.bucket={self.bucket:g}")
        if self.accumulation != base.accumulation:
            found.append(f"trainer.accumulate_grad_batches={self.accumulation}")
            found.append(f"loader.batch_size={batch_size // self.accumulation}")
        if self.adaptive != base.adaptive:
            found.append(f"memory={'adaptive' if self.adaptive else 'off'}")
        if self.kfac is not None and self.kfac != base.kfac:
            found += [] if base.kfac else ["optimizer=kfac"]
            found += self.kfac.overrides()
        return found
