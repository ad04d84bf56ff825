"""Which samples files hold: an instant each, its variables in one file or spread over several."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from apps.climate.fields import Channel, Field, find_field
from apps.climate.files import open_fields
from apps.climate.grid import Grid
from apps.climate.units import same_unit
from scadl_core.errors import DataError, nearest
from scadl_core.files import natural


class Catalogue:
    """The samples in files: one wherever every channel has the same key, a time or else a name.

    Channels are the inputs, such as ``TMQ`` or ``t@500hPa``, then the target, if any. The key is
    what named the files, for messages.

    Raises:
        DataError: A file cannot be read; a channel is in no file, or twice; grids, calendars or
            units differ; no sample has all channels.
    """

    def __init__(
        self,
        files: Sequence[Path],
        inputs: Sequence[str],
        target: str | None = None,
        key: str = "data.path",
    ) -> None:
        self.files, self._key = list(files), key
        self.names = [*inputs, *([target] if target else [])]
        # each channel in each file that has it
        self.fields: dict[str, list[Field]] = {name: [] for name in self.names}
        self.warnings: list[str] = []
        known = {name for file in self.files for name in self._scan(file)}
        for name, fields in self.fields.items():
            if not fields:
                key = "data.target" if name == target else "data.inputs"
                key = key if self._key == "data.path" else self._key
                variable, where = Channel.parse(name).variable, str(files[0])
                where = where if len(files) == 1 else f"any of {len(files)} files such as {where}"
                near = nearest(variable, known)
                raise DataError(f"{key}: variable {variable!r} is not in {where}{near}")
        self._check_alike()
        # by channel and key, the field and the position in it that hold a sample
        self.places = {name: self._index(name) for name in self.names}
        self._spread_constants()
        self.keys = self._complete_keys()

    def _scan(self, file: Path) -> list[str]:
        with open_fields(file) as dataset:
            for name in self.fields:  # each once: a target may be an input as well
                channel = Channel.parse(name)
                if channel.variable in dataset.variables:
                    self.fields[name].append(find_field(dataset, file, channel))
            return [str(variable) for variable in dataset.data_vars]

    def _check_alike(self) -> None:
        fields = [field for fields in self.fields.values() for field in fields]
        advice = "make them alike, or leave one out"
        first, dated = fields[0], next((field for field in fields if field.calendar), fields[0])
        self.calendar = dated.calendar
        for field in fields:
            if field.grid is not first.grid and (more := first.grid.difference(field.grid)):
                found = f"{first.path} and {field.path} are on differing grids: {more}"
                raise DataError(f"{found}; {advice} of {self._key}")
            if field.calendar not in ("", dated.calendar):
                both = f"{dated.path} ({dated.calendar}) and {field.path} ({field.calendar})"
                raise DataError(f"{both} have differing calendars; {advice} of {self._key}")
        for name, (one, *others) in self.fields.items():
            for other in others:
                if not same_unit(one.unit, other.unit):
                    both = f"{one.path} ({one.unit}) and {other.path} ({other.unit})"
                    raise DataError(f"{both} have {name} in differing units; {advice}")

    def _index(self, name: str) -> dict[str, tuple[Field, int]]:
        places: dict[str, tuple[Field, int]] = {}
        for field in self.fields[name]:
            for index, key in enumerate(field.keys):
                if key in places:
                    both = f"{places[key][0].path} and again in {field.path}"
                    raise DataError(f"{name} of {key} is in {both}; leave one out of {self._key}")
                places[key] = field, index
        return places

    def _spread_constants(self) -> None:
        """Lets a lone field without a time, such as a land mask, serve every sample."""
        lone = {name: it[0] for name, it in self.fields.items() if len(it) == 1 and not it[0].time}
        constant = {name: field for name, field in lone.items() if len(self.places[name]) == 1}
        if len(constant) < len(self.fields):
            changing = self.fields.keys() - constant
            keys = [key for name in changing for key in self.places[name]]
            for name, field in constant.items():
                self.places[name] = dict.fromkeys(keys, (field, 0))

    def _complete_keys(self) -> list[str]:
        in_any = {key for places in self.places.values() for key in places}
        in_all = in_any.intersection(*self.places.values())
        lost = []
        for name, places in self.places.items():
            if absent := sorted(in_any - places.keys(), key=natural):
                lost.append(f"{len(absent)} of {len(in_any)} samples lack {name}, as {absent[0]}")
        if not in_all:
            found = "; ".join(lost) or "the files hold none"
            advice = "samples are matched by time, or by file name where there is none"
            raise DataError(f"no sample has all of {', '.join(self.names)}: {found}; {advice}")
        self.warnings += [f"{text}; they are left out" for text in lost]
        return sorted(in_all, key=natural)

    @property
    def grid(self) -> Grid:
        """The grid of all files."""
        return self.fields[self.names[0]][0].grid

    def read(self, key: str) -> NDArray[np.float64]:
        """Reads a sample: canonical, shape [C, H, W], in the order of ``names``, missing is NaN."""
        places = [self.places[name][key] for name in self.names]
        fields_CHW = np.empty((len(places), *self.grid.shape))
        for path in dict.fromkeys(field.path for field, _ in places):
            with open_fields(path) as dataset:
                for channel, (field, index) in enumerate(places):
                    if field.path == path:
                        fields_CHW[channel] = field.read(dataset, index)
        return fields_CHW
