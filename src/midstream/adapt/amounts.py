"""Amounts that may be negative, in words: what a plan saves may turn out to be what it takes more."""

from __future__ import annotations


def show_amount(value: float) -> str:
    """A number without decimals; nothing is no less than zero."""
    text = f"{value:,.0f}"
    return "0" if text == "-0" else text


def show_either(value: float, text: str, text_if_negative: str) -> str:
    """One of two texts, by the sign of an amount, with its size in place of ``{}``."""
    return (text if show_amount(value)[0] != "-" else text_if_negative).format(show_amount(abs(value)))


def show_cost(cost: float) -> str:
    """What a migration has cost, in units."""
    return show_either(cost, "cost {} units", "took {} units less than the plan before it")


def show_gain(gain: float) -> str:
    """What a plan saves, in units per second."""
    return show_either(gain, "saves {} units/s", "takes {} units/s more")
