"""Units as people write them, and the values that a field of weather may have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# By CF standard name or else by unit: the unit, and the extremes that the atmosphere or the ocean
# has reached, rounded outward. Outside of these lies an undeclared fill value or another unit.
BY_STANDARD_NAME = {
    "air_pressure_at_mean_sea_level": ("Pa", 85_000.0, 110_000.0),
    "air_pressure_at_sea_level": ("Pa", 85_000.0, 110_000.0),
    "air_temperature": ("K", 130.0, 340.0),
    "atmosphere_mass_content_of_water_vapor": ("kg m-2", 0.0, 120.0),
    "eastward_wind": ("m s-1", -150.0, 150.0),
    "northward_wind": ("m s-1", -150.0, 150.0),
    "precipitation_flux": ("kg m-2 s-1", -1e-3, 0.2),
    "relative_humidity": ("%", -5.0, 200.0),
    "sea_surface_temperature": ("K", 268.0, 315.0),
    "specific_humidity": ("kg kg-1", -1e-3, 0.06),
    "surface_air_pressure": ("Pa", 40_000.0, 110_000.0),
    "surface_temperature": ("K", 170.0, 360.0),
}
BY_UNIT = {
    "K": (100.0, 400.0),
    "degC": (-150.0, 100.0),
    "Pa": (-15_000.0, 115_000.0),
    "hPa": (-150.0, 1150.0),
    "m s-1": (-200.0, 200.0),
    "kg m-2": (-1.0, 5000.0),
    "kg kg-1": (-0.01, 1.0),
    "%": (-10.0, 250.0),
}
SYNONYMS = {
    "celsius": "degc", "deg_c": "degc", "degree_celsius": "degc", "degrees_celsius": "degc",
    "kelvin": "k", "degk": "k", "deg_k": "k", "pascal": "pa", "percent": "%", "mb": "hpa",
    "mbar": "hpa", "millibar": "hpa", "millibars": "hpa", "meter": "m", "meters": "m", "metre": "m",
    "metres": "m", "second": "s", "seconds": "s", "sec": "s", "none": "", "1": "",
    "dimensionless": "", "(0-1)": "",
}  # fmt: skip
# A number, or a name with perhaps a power behind it.
PART = re.compile(r"([-+]?\d[\d.]*(?:e[-+]?\d+)?|.*?[^-+\d]?)(?:\*\*|\^)?([-+]?\d+)?", re.DOTALL)


def powers(unit: str) -> dict[str, int]:
    """The factors of a unit and their powers: ``m/s``, ``m s**-1`` and ``m s-1`` are the same."""
    found: dict[str, int] = {}
    sign = 1
    for part in re.findall(r"/|[^\s/*^.]+(?:(?:\*\*|\^)[-+]?\d+)?", unit.strip()):
        if part == "/":
            sign = -1
            continue
        name, power = PART.fullmatch(part).groups(default="1")  # type: ignore[union-attr]
        name = SYNONYMS.get(name.lower(), name.lower())
        found[name] = found.get(name, 0) + sign * int(power)
    return {name: power for name, power in found.items() if name and power}


def same_unit(one: str, other: str) -> bool:
    """Whether two texts mean the same unit, as far as one can tell; a missing one may be any."""
    return not one.strip() or not other.strip() or powers(one) == powers(other)


def usual_range(attributes: Mapping[str, Any]) -> tuple[float, float] | None:
    """The values that a variable with such ``standard_name`` and ``units`` may have, if known."""
    unit = str(attributes.get("units", ""))
    known, *limits = BY_STANDARD_NAME.get(str(attributes.get("standard_name", "")), ("",))
    if known and unit and same_unit(known, unit):
        return limits[0], limits[1]
    return next((it for name, it in BY_UNIT.items() if unit and same_unit(name, unit)), None)
