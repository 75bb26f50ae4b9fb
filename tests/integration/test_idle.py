"""P16, short: no client of an idle service is left unpolled."""

from tests.integration import idle
from tests.integration.conftest import MakeStack


def test_no_client_of_an_idle_service_is_left_unpolled_and_each_stops_at_once(
    broker: object, stacks: MakeStack, table: str
) -> None:
    """The aggregator has transactions, the others a plain producer."""
    stack = stacks(broker, database_url=table)
    stack.settings["INGEST_PROCESSING_GUARANTEE"] = "at_least_once"
    idle.idle_services(
        stack, "exactly_once_v2", warm_up_s=3, idle_s=5, growth_bytes=idle.GROWTH_BYTES_MAX
    )
