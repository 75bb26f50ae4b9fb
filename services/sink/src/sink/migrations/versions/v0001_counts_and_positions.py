"""Counts by word and window, and how far each partition was read."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "windowed_counts",
        sa.Column("word", sa.Text, nullable=False),
        sa.Column("window_start", sa.DateTime(timezone=True), nullable=False),
        sa.Column("window_end", sa.DateTime(timezone=True), nullable=False),
        sa.Column("count", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("source_topic_id", sa.Text, nullable=False),
        sa.Column("source_partition", sa.Integer, nullable=False),
        sa.Column("source_offset", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("word", "window_start", "window_end", name="windowed_counts_pkey"),
    )
    op.create_index(
        "windowed_counts_newest",
        "windowed_counts",
        [sa.text("window_start DESC"), sa.text("count DESC")],
    )
    op.create_table(
        "source_positions",
        sa.Column("application", sa.Text, nullable=False),
        sa.Column("topic", sa.Text, nullable=False),
        sa.Column("partition", sa.Integer, nullable=False),
        sa.Column("topic_id", sa.Text, nullable=False),
        sa.Column("next_offset", sa.BigInteger),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("application", "topic", "partition", name="source_positions_pkey"),
    )


def downgrade() -> None:
    op.drop_table("source_positions")
    op.drop_table("windowed_counts")
