"""The data of an invented grocery service: orders and what follows from them, as whole columns.

Every table is complete and unordered; :mod:`midstream.demo.data` decides when its rows arrive.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

MINUTE = 60_000_000
Integers = npt.NDArray[np.int64]

_ITEMS = pa.array(["apples", "bread", "butter", "coffee", "eggs", "milk", "oats", "olives", "pasta", "tea"])
_METHODS = pa.array(["card", "invoice", "voucher", "wallet"])
_WAREHOUSES = pa.array(["east", "harbour", "north", "south", "west"])
_CARRIERS = pa.array(["bike", "cargo bike", "foot", "van"])
_PLACES = pa.array(["at the door", "in a locker", "in person", "with a neighbour"])


@dataclass(frozen=True)
class Shares:
    """How often things go wrong, as shares of the orders, payments, parcels or deliveries concerned."""

    paid_again: float = 0.03
    """Orders with a second payment."""
    paid_too_little: float = 0.05
    paid_too_late: float = 0.01
    """Payments more than a quarter of an hour after their order."""
    lost_reference: float = 0.002
    """Payments without the id of their order."""
    split: float = 0.06
    """Orders that two warehouses pick and ship."""
    lost: float = 0.01
    """Parcels that never arrive."""
    scanned_twice: float = 0.005
    """Deliveries that are reported twice."""


USUAL = Shares()


@dataclass(frozen=True)
class Chance:
    """Draws random columns."""

    random: np.random.Generator

    def flags(self, share: float, count: int) -> npt.NDArray[np.bool_]:
        """True for about a share of ``count`` rows."""
        return self.random.random(count) < share

    def words(self, words: pa.Array, count: int) -> pa.Array:
        """One of the words for each row."""
        return words.take(pa.array(self.random.integers(0, len(words), count)))

    def minutes(self, low: float, high: float, count: int) -> Integers:
        """Microseconds, from ``low`` to ``high`` minutes."""
        return self.random.integers(int(low * MINUTE), int(high * MINUTE), count)


def open_shop(placed: Integers, random: np.random.Generator, shares: Shares) -> dict[str, pa.Table]:
    """The five tables, given when each order is placed."""
    chance, count = Chance(random), len(placed)
    quantity, cents = random.integers(1, 9, count), random.integers(49, 2_500, count)
    orders = pa.table(
        {
            "id": np.arange(count),
            "customer_id": random.integers(10_000, 60_000, count),
            "item": chance.words(_ITEMS, count),
            "quantity": pa.array(quantity, pa.int32()),
            "price": _money(cents, digits=8),
            "placed_at": _times(placed),
        }
    )
    payments = _payments(placed, quantity * cents, chance, shares)
    picks, shipments, deliveries = _parcels(placed, chance, shares)
    return {
        "orders": orders,
        "payments": payments,
        "picks": picks,
        "shipments": shipments,
        "deliveries": deliveries,
    }


def _payments(placed: Integers, total: Integers, chance: Chance, shares: Shares) -> pa.Table:
    again = np.flatnonzero(chance.flags(shares.paid_again, len(placed)))
    order = np.concatenate([np.arange(len(placed)), again])
    count = len(order)
    too_little = chance.flags(shares.paid_too_little, count)
    too_late = chance.flags(shares.paid_too_late, count)
    paid_at = placed[order] + chance.minutes(0.2, 6, count) + np.where(too_late, 16 * MINUTE, 0)
    return pa.table(
        {
            "order_id": pa.array(order, mask=chance.flags(shares.lost_reference, count)),
            "method": chance.words(_METHODS, count),
            "amount": _money(np.where(too_little, total[order] // 2, total[order]), digits=10),
            "paid_at": _times(paid_at),
        }
    )


def _parcels(placed: Integers, chance: Chance, shares: Shares) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Picks, shipments and deliveries: each warehouse ships its part of an order as one parcel."""
    split = np.flatnonzero(chance.flags(shares.split, len(placed)))
    order = np.concatenate([np.arange(len(placed)), split])
    count = len(order)
    first = chance.random.integers(0, len(_WAREHOUSES), len(placed))
    warehouse = _WAREHOUSES.take(pa.array(np.concatenate([first, (first[split] + 1) % len(_WAREHOUSES)])))
    picked_at = placed[order] + chance.minutes(4, 20, count)
    shipped_at = picked_at + chance.minutes(3, 20, count)
    # Most are delivered within an hour; a few take longer than the two hours of the query's window.
    delivered_at = shipped_at + 5 * MINUTE + chance.random.gamma(2.5, 9 * MINUTE, count).astype(np.int64)
    number = pa.array(chance.random.permutation(count)).cast(pa.string())
    tracking = pc.binary_join_element_wise("MS", pc.utf8_lpad(number, 9, "0"), "")
    picks = pa.table(
        {
            "order_id": order,
            "warehouse": warehouse,
            "picker": pa.array(chance.random.integers(1, 200, count), pa.int32()),
            "picked_at": _times(picked_at),
        }
    )
    shipments = pa.table(
        {
            "order_id": order,
            "warehouse": warehouse,
            "carrier": chance.words(_CARRIERS, count),
            "tracking": tracking,
            "weight": np.round(chance.random.gamma(3, 1.2, count), 3),
            "shipped_at": _times(shipped_at),
        }
    )
    unrated = chance.flags(0.6, count)
    deliveries = pa.table(
        {
            "tracking": tracking,
            "place": chance.words(_PLACES, count),
            "rating": pa.array(chance.random.integers(1, 6, count), pa.int32(), mask=unrated),
            "delivered_at": _times(delivered_at),
        }
    )
    times = np.where(chance.flags(shares.lost, count), 0, 1 + chance.flags(shares.scanned_twice, count))
    return picks, shipments, deliveries.take(pa.array(np.repeat(np.arange(count), times)))


def _times(micros: Integers) -> pa.Array:
    return pa.array(micros).cast(pa.timestamp("us", tz="UTC"))


def _money(cents: Integers, digits: int) -> pa.Array:
    whole = pa.array(cents).cast(pa.decimal128(19, 0))
    return pc.multiply(whole, pa.scalar(Decimal("0.01"))).cast(pa.decimal128(digits, 2))
