"""The join of the demo, as a user of Midstream writes it."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from midstream import Join

SCHEMAS = {
    "orders": "id BIGINT, customer_id BIGINT, item STRING, quantity INT, price DECIMAL(8,2), "
    "placed_at TIMESTAMP",
    "payments": "order_id BIGINT, method STRING, amount DECIMAL(10,2), paid_at TIMESTAMP",
    "picks": "order_id BIGINT, warehouse STRING, picker INT, picked_at TIMESTAMP",
    "shipments": "order_id BIGINT, warehouse STRING, carrier STRING, tracking STRING, weight DOUBLE, "
    "shipped_at TIMESTAMP",
    "deliveries": "tracking STRING, place STRING, rating INT, delivered_at TIMESTAMP",
}

OTHER_PLAN = "(orders payments) ((picks shipments) deliveries)"
"""Half-way the demo moves from the plan that it began with to this one."""


def fulfilment(spark: SparkSession, folder: Path) -> Join:
    """Every parcel that was paid in full and delivered in time, from order to delivery."""

    def read(name: str) -> DataFrame:
        source = spark.readStream.schema(SCHEMAS[name]).option("maxFilesPerTrigger", 1)
        return source.parquet(str(folder / name))

    return (
        Join(spark)
        .stream("orders", read("orders"), time="placed_at", lateness="10 minutes")
        .stream("payments", read("payments"), time="paid_at", lateness="10 minutes")
        .stream("picks", read("picks"), time="picked_at", lateness="10 minutes")
        .stream("shipments", read("shipments"), time="shipped_at", lateness="10 minutes")
        .stream("deliveries", read("deliveries"), time="delivered_at", lateness="10 minutes")
        .on("orders.id = payments.order_id")
        .on("orders.id = picks.order_id")
        .on("picks.order_id = shipments.order_id AND picks.warehouse = shipments.warehouse")
        .on("shipments.tracking = deliveries.tracking")
        .on("payments.amount >= orders.quantity * orders.price")
        .within("2 hours")
        .within("15 minutes", "orders", "payments")
        .select("orders.id AS order_id", "orders.customer_id AS customer_id", "orders.item AS item")
        .select("payments.method AS paid_by", "payments.amount AS amount")
        .select("picks.warehouse AS warehouse", "shipments.carrier AS carrier")
        .select("deliveries.tracking AS tracking", "deliveries.rating AS rating")
        .select("orders.placed_at AS placed_at", "deliveries.delivered_at AS delivered_at")
    )
