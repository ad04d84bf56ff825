from __future__ import annotations

import pytest

from apps.climate.units import powers, same_unit, usual_range


@pytest.mark.parametrize(
    "texts",
    [
        ("m/s", "m s-1", "m s**-1", "m.s-1", "m s^-1", "M/S", "meters second-1"),
        ("kg/m^2", "kg m-2", "kg m**-2", ""),
        ("kg/kg", "kg kg-1", "1", "dimensionless"),
        ("hPa", "mb", "millibars"),
        ("degC", "Celsius", "degrees_Celsius"),
        ("W/m2", "W m-2"),
    ],
)
def test_spellings_of_one_unit(texts):
    assert all(same_unit(one, other) for one in texts for other in texts)


@pytest.mark.parametrize(
    ("one", "other"),
    [("Pa", "hPa"), ("K", "degC"), ("m", "m-1"), ("m2 s-2", "m"), ("m", "10 m"), ("1", "%")],
)
def test_different_units(one, other):
    assert not same_unit(one, other)


def test_powers():
    assert powers("kg m-2 s-1") == {"kg": 1, "m": -2, "s": -1}
    assert powers("1e-3 kg/m2/s") == {"1e-3": 1, "kg": 1, "m": -2, "s": -1}


def test_the_usual_range_goes_by_name_then_by_unit():
    assert usual_range({"standard_name": "air_temperature", "units": "K"}) == (130, 340)
    assert usual_range({"standard_name": "air_temperature", "units": "Celsius"}) == (-150, 100)
    assert usual_range({"units": "m/s"}) == (-200, 200)
    assert usual_range({"units": "furlong"}) is usual_range({}) is None
