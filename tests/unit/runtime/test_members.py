"""Members: what a tag says, which lists can be used, who works and who waits."""

from dataclasses import replace

import pytest

from streamcore.model import TopicPartition
from streamcore.runtime.members import (
    Agreed,
    Tag,
    encode_tag,
    fingerprint,
    guest_list,
    judge,
    key,
    process_name,
    transactional_id,
)
from streamcore.runtime.ports import GroupMember, GroupView, Process

OLD = "0000aaaa"
NEW = "0000bbbb"
LINES = [TopicPartition("lines", number) for number in range(3)]


def tag(slot: str, run: str = "r1", started_ms: int = 1_000, code: str = OLD) -> str:
    return encode_tag(code, Process(slot, run, started_ms))


def member(number: int, client_id: str, *shares: TopicPartition) -> GroupMember:
    return GroupMember(f"id-{number}", client_id, shares)


def two(first: str | None = None, second: str | None = None) -> GroupView:
    return GroupView(
        stable=True,
        members=(
            member(1, first or tag("a"), LINES[0], LINES[1]),
            member(2, second or tag("b"), LINES[2]),
        ),
    )


def agreed(view: GroupView, number: int = 1) -> Agreed:
    mine = next(m for m in view.members if m.member_id == f"id-{number}")
    answer = judge(view, mine.member_id, mine.shares, LINES)
    assert isinstance(answer, Agreed), answer
    return answer


# --- the tag ----------------------------------------------------------------------------------


def test_a_tag_says_who_it_is() -> None:
    process = Process(slot="web.1-state", run="7f3a", started_ms=1_700_000_000_123)
    text = encode_tag("12ab34cd", process)
    assert text == "sc1.12ab34cd.loyw3v5n.7f3a.web.1-state"
    found = Tag.parse(text)
    assert found == Tag(1, "12ab34cd", 1_700_000_000_123, "7f3a", "web.1-state")
    assert found.process_name == process_name(process) == "web.1-state.7f3a"


def test_a_tag_at_the_beginning_of_time() -> None:
    found = Tag.parse(tag("a", started_ms=0))
    assert found is not None
    assert found.started_ms == 0


@pytest.mark.parametrize(
    "client_id",
    [
        "",
        "rdkafka",
        "sc1",
        "sc1.0000aaaa.rs.r1",
        "sc1.0000aaaa.rs.r1.",
        "sc1.0000aaa.rs.r1.a",
        "sc1.0000AAAA.rs.r1.a",
        "sc1.0000aaaa.rs.r1.a b",
        "sc1.0000aaaa.rs.r1.a\n",
        "sc.0000aaaa.rs.r1.a",
        "sc1.0000aaaa.-1.r1.a",
        "xsc1.0000aaaa.rs.r1.a",
        "sc1.0000aaaa.rs.r~2.a",
        "sc\u0661.0000aaaa.rs.r1.a",
    ],
)
def test_what_is_no_tag(client_id: str) -> None:
    assert Tag.parse(client_id) is None


def test_a_tag_that_the_others_could_not_read_is_not_made() -> None:
    with pytest.raises(AssertionError):
        encode_tag(OLD, Process("a", "r.1/2", 1_000))


def test_the_transactional_id_can_be_derived_from_the_name() -> None:
    assert transactional_id("count", process_name(Process("a.b", "r1", 1))) == "count.a.b.r1"


def test_a_fingerprint_tells_topologies_and_counts_apart() -> None:
    text = "Sub-topology: 0"
    seen = {
        fingerprint(text, {"lines": 3, "words": 2}),
        fingerprint(text, {"lines": 2, "words": 3}),
        fingerprint(text, {"lines": 3}),
        fingerprint(text + " ", {"lines": 3}),
    }
    assert len(seen) == 4
    assert fingerprint(text, {"words": 2, "lines": 3}) in seen
    assert all(len(hex_) == 8 and int(hex_, 16) >= 0 for hex_ in seen)


# --- which lists can be used ------------------------------------------------------------------


def test_a_list_that_all_see_alike() -> None:
    first, second = agreed(two(), 1), agreed(two(), 2)
    assert first.members == second.members == {"id-1": "a.r1", "id-2": "b.r1"}
    assert first.key == second.key == key(two())
    assert (first.me, second.me) == ("a.r1", "b.r1")
    assert (first.eligible, second.eligible) == (True, True)
    assert (first.publishes, second.publishes) == (True, False)
    assert first.foreign == first.others == ()


def test_the_order_of_a_list_is_of_no_account() -> None:
    turned = GroupView(True, tuple(replace(m, shares=m.shares[::-1]) for m in two().members[::-1]))
    assert judge(turned, "id-1", LINES[:2], LINES[::-1]) == agreed(two())


def test_not_while_it_rebalances() -> None:
    assert (
        judge(replace(two(), stable=False), "id-1", LINES[:2], LINES) == "the group is rebalancing"
    )


def test_not_without_me() -> None:
    assert judge(two(), "id-3", [], LINES) == "it does not list this member"


@pytest.mark.parametrize("share", [[], LINES[:1], LINES[1:], LINES])
def test_not_with_another_share_than_mine(share: list[TopicPartition]) -> None:
    answer = judge(two(), "id-1", share, LINES)
    assert answer == "it gives this member another share than the callback did"


def test_my_share_in_another_order_is_the_same() -> None:
    assert isinstance(judge(two(), "id-1", LINES[1::-1], LINES), Agreed)


def test_not_when_a_partition_is_given_to_nobody() -> None:
    words = TopicPartition("words", 0)
    assert judge(two(), "id-1", LINES[:2], [*LINES, words]) == "it gives words-0 to nobody"


def test_not_when_a_partition_is_given_to_two() -> None:
    members = (*two().members, member(3, tag("c"), LINES[2]))
    answer = judge(GroupView(True, members), "id-1", LINES[:2], LINES)
    assert answer == "it gives lines-2 to more than one member"


def test_not_when_one_like_me_reads_what_i_do_not_know() -> None:
    members = (*two().members, member(3, tag("c"), TopicPartition("lines", 3)))
    answer = judge(GroupView(True, members), "id-1", LINES[:2], LINES)
    assert answer == "it gives lines-3, which this topology does not read, to one like me"


@pytest.mark.parametrize("client_id", ["stranger", tag("c", code=NEW)])
def test_others_may_read_what_i_do_not_know(client_id: str) -> None:
    members = (*two().members, member(3, client_id, TopicPartition("elsewhere", 0)))
    assert isinstance(judge(GroupView(True, members), "id-1", LINES[:2], LINES), Agreed)


def test_members_without_a_share_take_part() -> None:
    view = GroupView(True, (*two().members, member(3, tag("c"))))
    assert agreed(view, 3).members == {"id-1": "a.r1", "id-2": "b.r1", "id-3": "c.r1"}


# --- the key ----------------------------------------------------------------------------------


def test_the_key_tells_lists_apart() -> None:
    first, second = two().members
    views = [
        two(),
        GroupView(True, (first,)),
        GroupView(True, (replace(first, member_id="id-0"), second)),
        GroupView(True, (replace(first, client_id="x"), second)),
        GroupView(True, (replace(first, shares=(LINES[0],)), replace(second, shares=(LINES[1],)))),
        GroupView(
            True, (replace(first, shares=second.shares), replace(second, shares=first.shares))
        ),
    ]
    assert len({key(view) for view in views}) == len(views)


# --- who works --------------------------------------------------------------------------------


def test_strangers_get_nothing() -> None:
    members = (member(1, tag("a"), *LINES[:2]), member(0, "stranger", LINES[2]))
    answer = agreed(GroupView(True, members))
    assert answer.members == {"id-1": "a.r1"}
    assert [m.client_id for m in answer.foreign] == ["stranger"]
    assert answer.publishes, "a stranger does not come first"


def test_in_a_rolling_deploy_those_like_the_last_one_work() -> None:
    view = two(tag("a", started_ms=1_000, code=OLD), tag("b", started_ms=2_000, code=NEW))
    old, new = agreed(view, 1), agreed(view, 2)
    assert old.members == new.members == {"id-2": "b.r1"}
    assert (old.eligible, old.me, old.publishes) == (False, "", False)
    assert (new.eligible, new.me, new.publishes) == (True, "b.r1", True)
    assert [m.member_id for m in old.others] == [m.member_id for m in new.others] == ["id-1"]


def test_a_roll_back_is_a_deploy_too() -> None:
    view = two(tag("a", started_ms=3_000, code=OLD), tag("b", started_ms=2_000, code=NEW))
    assert agreed(view, 2).members == {"id-1": "a.r1"}


def test_all_of_the_last_code_work_however_old() -> None:
    members = (
        member(1, tag("a", started_ms=1, code=NEW), LINES[0]),
        member(2, tag("b", started_ms=2, code=OLD), LINES[1]),
        member(3, tag("c", started_ms=3, code=NEW), LINES[2]),
    )
    assert set(agreed(GroupView(True, members)).members.values()) == {"a.r1", "c.r1"}


def test_another_version_of_the_function_counts_like_another_topology() -> None:
    view = two(tag("a", started_ms=1_000), tag("b", started_ms=2_000).replace("sc1.", "sc2."))
    assert agreed(view, 1).members == {"id-2": "b.r1"}
    assert not agreed(view, 1).eligible


def test_started_in_the_same_millisecond_all_still_see_the_same() -> None:
    first, second = tag("a", run="r1", code=OLD), tag("b", run="r2", code=NEW)
    assert agreed(two(first, second), 1).members == {"id-2": "b.r2"}
    assert agreed(two(second, first), 1).members == {"id-1": "b.r2"}


def test_a_repeated_client_id_is_two_members() -> None:
    view = two(tag("a"), tag("a"))
    assert agreed(view, 1).members == {"id-1": "a.r1", "id-2": "a.r1~2"}
    assert agreed(view, 2).me == "a.r1~2"
    assert (agreed(view, 1).publishes, agreed(view, 2).publishes) == (True, False)


# --- the guest --------------------------------------------------------------------------------


def parsed(client_id: str) -> Tag:
    found = Tag.parse(client_id)
    assert found is not None
    return found


def test_the_first_guest_is_alone() -> None:
    me = parsed(tag("c"))
    for stable in (True, False):
        assert guest_list(GroupView(stable, ()), me) == ("c.r1",)
    assert guest_list(GroupView(True, (member(1, "stranger"),)), me) == ("c.r1",)


def test_a_guest_waits_until_the_list_is_stable() -> None:
    assert guest_list(replace(two(), stable=False), parsed(tag("c"))) is None


def test_a_guest_sees_what_the_members_will_see_with_it() -> None:
    mine = tag("aa", started_ms=2_000)
    seen = guest_list(two(), parsed(mine))
    later = GroupView(True, (*two().members, member(3, mine)))
    assert seen == tuple(sorted(agreed(later).members.values())) == ("a.r1", "aa.r1", "b.r1")


def test_a_guest_that_brings_a_new_topology_will_work_alone() -> None:
    assert guest_list(two(), parsed(tag("c", started_ms=9_000, code=NEW))) == ("c.r1",)


def test_a_guest_with_an_old_topology_is_not_wanted() -> None:
    assert guest_list(two(), parsed(tag("c", started_ms=1, code=NEW))) == ("a.r1", "b.r1")


def test_a_guest_takes_the_place_of_what_it_was() -> None:
    assert guest_list(two(), parsed(tag("b"))) == ("a.r1", "b.r1")
