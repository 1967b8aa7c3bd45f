"""The engine on a hand-written kitchen: texts as ALFWorld's transcripts have them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from alfworld_kitchen import edited, kitchen
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.errors import DataError
from agentrl.tasks.alfworld.domain import check_domain, domain_text
from agentrl.tasks.alfworld.engine import NOTHING, Game, World
from agentrl.tasks.alfworld.grammar import read_grammar, symbols


@pytest.fixture
def world() -> World:
    return Game.parse(kitchen(), "kitchen").start()


def play(world: World, *commands: str) -> str:
    for command in commands:
        assert world.step(command), command
    return world.feedback


def test_opening(world: World) -> None:
    assert world.feedback == (
        "-= Welcome to TextWorld, ALFRED! =-\n\n"
        "You are in the middle of a room. Looking quickly around you, you see a countertop 2, "
        "a countertop 1, a fridge 1, a microwave 1, and a sinkbasin 1.\n\n"
        "Your task is to: put a hot apple in fridge."
    )
    assert world.commands == [
        "go to countertop 1", "go to countertop 2", "go to fridge 1", "go to microwave 1",
        "go to sinkbasin 1", "inventory", "look",
    ]  # fmt: skip
    assert world.game.task == "put a hot apple in fridge"
    assert not world.won


def test_places_are_told_in_the_words_of_each_grammar(world: World) -> None:
    told = "On the countertop 2, you see a apple 2, and a knife 1."
    assert play(world, "go to countertop 2") == f"You arrive at loc 4. {told}"
    newer = Game.parse(kitchen("alfworld"), "kitchen").start()
    assert play(newer, "go to countertop 2") == f"You arrive at countertop 2. {told}"
    assert play(newer, "take apple 2 from countertop 2", "move apple 2 to sinkbasin 1") == (
        "You move the apple 2 to the sinkbasin 1."
    )
    assert play(newer, "help").startswith("Available commands:\n  look\n")
    assert play(world, "take apple 2 from countertop 2", "put apple 2 in/on sinkbasin 1") == (
        "You put the apple 2 in/on the sinkbasin 1."
    )


def test_receptacles_at_the_present_place_are_not_offered_to_go_to(world: World) -> None:
    play(world, "go to countertop 2")
    assert [c for c in world.commands if c.startswith("go to")] == [
        "go to countertop 1", "go to fridge 1", "go to microwave 1",
    ]  # fmt: skip
    assert play(world, "look") == (
        "You are facing the countertop 2, and sinkbasin 1. Next to it, you see nothing."
    )


def test_look_in_the_middle_of_the_room_sees_nothing(world: World) -> None:
    assert play(world, "look").endswith("Looking quickly around you, you see nothing.")


def test_doors(world: World) -> None:
    assert play(world, "go to fridge 1") == "You arrive at loc 2. The fridge 1 is closed."
    assert "take apple 1 from fridge 1" not in world.commands
    assert play(world, "open fridge 1") == (
        "You open the fridge 1. The fridge 1 is open. In it, you see a apple 1."
    )
    assert "take apple 1 from fridge 1" in world.commands
    assert play(world, "close fridge 1") == "You close the fridge 1."
    assert play(world, "examine fridge 1") == "The fridge 1 is closed."


def test_only_the_held_object_can_be_examined(world: World) -> None:
    play(world, "go to countertop 2")
    assert "examine apple 2" not in world.commands
    assert play(world, "inventory") == "You are not carrying anything."
    assert play(world, "take apple 2 from countertop 2") == (
        "You pick up the apple 2 from the countertop 2."
    )
    assert play(world, "inventory") == "You are carrying: a apple 2."
    assert play(world, "examine apple 2") == "There's nothing special about apple 2."
    assert play(world, "clean apple 2 with sinkbasin 1") == (
        "You clean the apple 2 using the sinkbasin 1."
    )
    assert play(world, "examine apple 2") == "This is a clean apple 2."
    assert "take knife 1 from countertop 2" not in world.commands


def test_bowls_are_examined_as_containers(world: World) -> None:
    assert play(world, "go to countertop 1", "take bowl 1 from countertop 1", "examine bowl 1") == (
        "This is a normal bowl 1. In it, you see nothing."
    )


def test_an_object_moved_at_a_shared_place_counts_as_beside_the_other(world: World) -> None:
    play(
        world,
        "go to countertop 2",
        "take apple 2 from countertop 2",
        "put apple 2 in/on sinkbasin 1",
    )
    assert play(world, "look").endswith("Next to it, you see a apple 2.")


def test_use_stays_on_offer_and_the_text_stays(world: World) -> None:
    assert play(world, "go to countertop 1", "use desklamp 1") == "You turn on the desklamp 1."
    assert play(world, "use desklamp 1") == "You turn on the desklamp 1."
    assert "take desklamp 1 from countertop 1" not in world.commands


def test_slicing_needs_a_held_knife(world: World) -> None:
    play(world, "go to countertop 2")
    assert not [c for c in world.commands if c.startswith("slice")]
    assert play(world, "take knife 1 from countertop 2", "slice apple 2 with knife 1") == (
        "You sliced the apple 2 with the knife 1."
    )


def test_heating_and_cooling_undo_each_other(world: World) -> None:
    play(world, "go to countertop 2", "take apple 2 from countertop 2", "go to microwave 1")
    assert (
        play(world, "heat apple 2 with microwave 1", "examine apple 2") == "This is a hot apple 2."
    )
    assert play(world, "go to fridge 1", "cool apple 2 with fridge 1") == (
        "You cool the apple 2 using the fridge 1."
    )
    assert play(world, "examine apple 2") == "This is a cold apple 2."


def test_the_goal_wins_and_only_the_goal(world: World) -> None:
    play(world, "go to fridge 1", "open fridge 1")
    assert not world.won, "a cold apple in the fridge is not a hot one"
    play(world, "go to countertop 2", "take apple 2 from countertop 2", "go to microwave 1")
    play(world, "heat apple 2 with microwave 1", "go to fridge 1")
    assert not world.won
    play(world, "put apple 2 in/on fridge 1")
    assert world.won


@pytest.mark.parametrize(
    "command", ["", "dance", "LOOK", "open fridge 1", "take apple 1 from fridge 1"]
)
def test_what_is_not_admissible_changes_nothing(world: World, command: str) -> None:
    before = {predicate: set(facts) for predicate, facts in world.facts.items()}
    commands = world.commands
    assert not world.step(command)
    assert world.feedback == NOTHING
    assert world.facts == before
    assert world.commands == commands
    assert world.moves == 0


def test_a_fork_leaves_its_origin_alone(world: World) -> None:
    play(world, "go to fridge 1")
    fork = world.fork()
    play(fork, "open fridge 1", "take apple 1 from fridge 1")
    assert world.held == ()
    assert "open fridge 1" in world.commands
    assert fork.held == ("apple_bar_2",)


def test_official_domains_are_recognised_whatever_their_order() -> None:
    domain = domain_text(with_help=False)
    quirk = """(:action examineObject :parameters (?a - agent ?o - object) :precondition
      (or (exists (?l - location, ?r - receptacle) (and (atLocation ?a ?l)
        (receptacleAtLocation ?r ?l) (inReceptacle ?o ?r) (or (not (openable ?r)) (opened ?r))))
        (holds ?a ?o)) :effect (and (checked ?o)))"""
    start = domain.index("(:action examineObject")
    changed = domain[:start] + quirk + domain[domain.index("(:action GotoLocation") :]
    actions, arity = check_domain(changed)
    assert actions == check_domain(domain)[0]
    assert "help" not in actions
    assert arity["inreceptacle"] == 2


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ([], "must be a JSON object"),
        (kitchen(grammar=None), "key 'grammar' is missing"),
        (kitchen(walkthrough="look"), "'walkthrough' must be a list"),
        (edited("pddl_domain", "(checked ?l))", "(checked ?l)"), "pddl_domain: unbalanced"),
        (edited("pddl_domain", "(not (holdsAny ?a))", "(holdsAny ?a)"), "action 'pickupobject' differs"),
        (edited("pddl_domain", ":action SliceObject", ":action Fly"), "action 'fly' is not of the ALFRED"),
        (edited("pddl_problem", "(openable Fridge_bar_a)", "(openable Fridge)"), "'fridge', not in"),
        (edited("pddl_problem", "(openable Fridge_bar_a)", "(flies Fridge_bar_a)"), "'flies' is not in"),
        (edited("pddl_problem", "(openable Fridge_bar_a)", "(openable Fridge_bar_a agent1)"), "takes 1 arg"),
        (edited("pddl_problem", "(isHot ?o)", "(isHot ?o ?r)"), "'ishot' takes 1 arguments, not 2"),
        (edited("pddl_problem", "(atLocation agent1 loc_bar_0)", ""), "once, not 0 times"),
        (
            edited("pddl_problem", "(openable Fridge_bar_a)", "(receptacleAtLocation Fridge_bar_a loc_bar_1)"),
            "two locations",
        ),
        (edited("grammar", '"rhs": "nothing"', '"rhs": nothing'), "grammar: .*not valid JSON"),
        (edited("grammar", "action look ", "action gaze "), "no text for action 'look'"),
        (edited("grammar", '"list_empty"', '"list_void"'), "rule 'list_empty' is missing"),
        (edited("grammar", "{r.indefinite} {r.name or r.id}", "{__import__('os')}"), "expression"),
        (edited("grammar", "{r.indefinite} {r.name or r.id}", "{r.__class__}"), "expression"),
        (edited("grammar", "holdsany(a:agent)", "holdsany a"), "condition"),
        (edited("grammar", "action look {", "action look ;"), "expected '{'"),
        (edited("grammar", "action look {", "? look {"), "cannot read"),
        (edited("grammar", "open {r}", "open {[o | opened(r:receptacle)]"), r"cannot read '\{"),
    ],
)  # fmt: skip
def test_malformed_games_are_refused_by_name(data: object, why: str) -> None:
    with pytest.raises(DataError, match=f"^kitchen: .*({why})"):
        Game.parse(data, "kitchen")


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["pddl_domain", "grammar", "pddl_problem"]),
    st.floats(0, 1),
    st.integers(1, 40),
    st.sampled_from(["", "(", ")", "{", '"', "(x)", "-", "?x"]),
)
def test_a_damaged_game_is_refused_or_played_but_never_crashes(
    key: str, where: float, length: int, instead: str
) -> None:
    data = kitchen()
    text = str(data[key])
    start = int(where * len(text))
    try:
        world = Game.parse(
            {**data, key: text[:start] + instead + text[start + length :]}, "g"
        ).start()
        for command in world.commands:
            world.fork().step(command)
    except DataError as error:
        assert str(error).startswith("g: ")


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "game.tw-pddl"
    with pytest.raises(DataError, match=r"game\.tw-pddl: cannot be read"):
        Game.load(path)
    path.write_text("{")
    with pytest.raises(DataError, match=r"game\.tw-pddl: not valid JSON"):
        Game.load(path)
    path.write_text(json.dumps(kitchen()))
    assert Game.load(path).where == str(path)


def test_a_rule_that_is_missing_is_named_when_it_is_met() -> None:
    data = edited("grammar", "#GotoLocation.feedback#", "#arrival#")
    world = Game.parse(data, "kitchen").start()
    with pytest.raises(DataError, match=r"^kitchen: grammar: no rule 'arrival' applies"):
        world.step("go to fridge 1")


def test_grammar_blocks_inside_actions_and_comments_are_read() -> None:
    grammar = read_grammar(
        'action look { template :: "look"; feedback :: "#a#";\n'
        'grammar :: """{\n# a comment\n"a": [{"rhs": "one\\n{x} {y.id}"}]}"""; } # more\n'
    )
    entities = {"e1": type("E", (), {"id": "e1", "name": "egg 1"})()}
    feedback = grammar.actions["look"].feedback
    assert grammar.derive(feedback, {}, entities, {"?x": "e1", "?y": "e1"}) == "one\negg 1 e1"


def test_text_after_what_cannot_be_read_is_dropped_as_the_reference_does() -> None:
    assert symbols("  a {x})} b") == symbols("a {x})")
