"""Samples packed, and measurements found by their run first

Revision ID: 0031
Revises: 0030

Rows keep what they have; those that come from now on have their samples packed. The key that began with the series put
the rows of a run into as many pages as it has series, and left the pages half empty. The new one is built while results
wait: a second or two for each million measurements. Who cannot wait builds it before, partition by partition, under
the name that is looked for here.
"""

import sqlalchemy as sa
from alembic import op

from backend.store.ingest.packed import unpack

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

PARTITIONS = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'measurement'::regclass"
BUILT_BEFORE = """
SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = to_regclass(:partition) AND c.relname = :name AND i.indisunique AND i.indisvalid
  AND pg_get_indexdef(i.indexrelid) LIKE '%(run_id, series_id, measured_at)'
"""
KEY = "ALTER TABLE measurement ADD CONSTRAINT pk_measurement PRIMARY KEY ({})"
BATCH = 1_000


def upgrade() -> None:
    op.add_column("measurement", sa.Column("samples_packed", sa.LargeBinary()))
    op.execute("ALTER TABLE measurement DROP CONSTRAINT pk_measurement")
    connection = op.get_bind()
    for partition in connection.scalars(sa.text(PARTITIONS)).all():
        values = {"partition": partition, "name": f"{partition}_by_run"}
        if (name := connection.scalar(sa.text(BUILT_BEFORE), values)) is not None:
            op.execute(f"ALTER TABLE {partition} ADD CONSTRAINT {partition}_pkey PRIMARY KEY USING INDEX {name}")
    op.execute(KEY.format("run_id, series_id, measured_at"))
    op.drop_index("ix_measurement_run_id", "measurement")


def downgrade() -> None:
    connection = op.get_bind()
    packed = sa.text(
        f"""SELECT tableoid, ctid, samples_packed FROM measurement WHERE samples_packed IS NOT NULL LIMIT {BATCH}"""
    )
    unpacked = sa.text(
        """UPDATE measurement SET samples = :samples, samples_packed = NULL
           WHERE tableoid = :tableoid AND ctid = CAST(:ctid AS tid)"""
    )
    while rows := connection.execute(packed).all():
        for tableoid, ctid, samples in rows:
            connection.execute(unpacked, {"tableoid": tableoid, "ctid": ctid, "samples": unpack(bytes(samples))})
    op.drop_column("measurement", "samples_packed")
    op.create_index("ix_measurement_run_id", "measurement", ["run_id"])
    op.execute("ALTER TABLE measurement DROP CONSTRAINT pk_measurement")
    op.execute(KEY.format("series_id, run_id, measured_at"))
