"""Between Spark's types and Arrow's, which the core speaks."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_type
from pyspark.sql.types import StringType, StructType

from midstream.errors import QueryError
from midstream.query.types import show_type


def arrow_schema(stream: str, df: DataFrame) -> pa.Schema:
    """The columns of a DataFrame in Arrow's types; one that Arrow cannot carry is an error."""
    fields: list[pa.Field] = []
    seen: set[str] = set()
    for field in df.schema.fields:
        if field.name.lower() in seen:
            raise QueryError("a stream must have columns with different names", got=f"{stream}.{field.name}")
        seen.add(field.name.lower())
        if isinstance(field.dataType, StringType) and field.dataType.collation != "UTF8_BINARY":
            raise QueryError(
                "text must be compared byte by byte",
                got=f"{stream}.{field.name} with collation {field.dataType.collation}",
                hint="cast it to string in the DataFrame",
            )
        try:
            kind = to_arrow_type(field.dataType, timezone="UTC")
            pa.schema([(field.name, kind)]).empty_table()
        except Exception as error:
            raise QueryError(
                "every column must have a type that can be stored",
                got=f"{stream}.{field.name} of type {field.dataType.simpleString()}",
                hint="drop or cast it in the DataFrame",
            ) from error
        if pa.types.is_duration(kind) or pa.types.is_time(kind):
            raise QueryError(
                "every column must have a type that Parquet keeps",
                got=f"{stream}.{field.name} of type {field.dataType.simpleString()}",
                hint="drop or cast it in the DataFrame",
            )
        fields.append(pa.field(field.name, kind))
    return pa.schema(fields)


def spark_schema(schema: pa.Schema) -> StructType:
    """The columns of results in Spark's types."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def cast_name(kind: pa.DataType) -> str:
    """The name of a key's type in a Spark cast."""
    return show_type(kind)
