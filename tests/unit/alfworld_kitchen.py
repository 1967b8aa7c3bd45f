"""A game written by hand: one kitchen, as a file of it would be."""

from __future__ import annotations

from agentrl.tasks.alfworld.domain import domain_text
from agentrl.tasks.alfworld.generator import Language, grammar_text

PROBLEM = """
(define (problem kitchen) (:domain alfred)
 (:objects agent1 - agent
   loc_bar_0 loc_bar_1 loc_bar_2 loc_bar_3 loc_bar_4 - location
   CounterTop_bar_a CounterTop_bar_b Fridge_bar_a Microwave_bar_a Sink_bar_a_bar_SinkBasin - receptacle
   Apple_bar_1 Apple_bar_2 Knife_bar_1 Bowl_bar_1 DeskLamp_bar_1 - object
   CounterTopType FridgeType MicrowaveType SinkBasinType - rtype
   AppleType KnifeType BowlType DeskLampType ButterKnifeType - otype)
 (:init (= (total-cost) 0) (atLocation agent1 loc_bar_0)
   (receptacleAtLocation CounterTop_bar_a loc_bar_1) (receptacleType CounterTop_bar_a CounterTopType)
   (receptacleAtLocation CounterTop_bar_b loc_bar_2) (receptacleType CounterTop_bar_b CounterTopType)
   (receptacleAtLocation Fridge_bar_a loc_bar_3) (receptacleType Fridge_bar_a FridgeType)
   (receptacleAtLocation Microwave_bar_a loc_bar_4) (receptacleType Microwave_bar_a MicrowaveType)
   (receptacleAtLocation Sink_bar_a_bar_SinkBasin loc_bar_1)
   (receptacleType Sink_bar_a_bar_SinkBasin SinkBasinType)
   (openable Fridge_bar_a) (openable Microwave_bar_a)
   (canContain CounterTopType AppleType) (canContain FridgeType AppleType)
   (canContain CounterTopType KnifeType) (canContain SinkBasinType AppleType)
   (objectType Apple_bar_1 AppleType) (pickupable Apple_bar_1) (sliceable Apple_bar_1)
   (heatable Apple_bar_1) (cleanable Apple_bar_1) (coolable Apple_bar_1)
   (inReceptacle Apple_bar_1 CounterTop_bar_a) (objectAtLocation Apple_bar_1 loc_bar_1)
   (objectType Apple_bar_2 AppleType) (pickupable Apple_bar_2)
   (inReceptacle Apple_bar_2 Fridge_bar_a) (objectAtLocation Apple_bar_2 loc_bar_3)
   (objectType Knife_bar_1 KnifeType) (pickupable Knife_bar_1)
   (inReceptacle Knife_bar_1 CounterTop_bar_a) (objectAtLocation Knife_bar_1 loc_bar_1)
   (objectType Bowl_bar_1 BowlType) (pickupable Bowl_bar_1) (isReceptacleObject Bowl_bar_1)
   (inReceptacle Bowl_bar_1 CounterTop_bar_b) (objectAtLocation Bowl_bar_1 loc_bar_2)
   (objectType DeskLamp_bar_1 DeskLampType) (toggleable DeskLamp_bar_1)
   (inReceptacle DeskLamp_bar_1 CounterTop_bar_b) (objectAtLocation DeskLamp_bar_1 loc_bar_2))
 (:goal (and (exists (?r - receptacle) (exists (?o - object) (and (heatable ?o)
   (objectType ?o AppleType) (receptacleType ?r FridgeType) (isHot ?o) (inReceptacle ?o ?r)))))))
"""


def kitchen(language: Language = "agentbench", **changes: object) -> dict[str, object]:
    """The JSON object of the game, with some of its keys changed."""
    return {
        "pddl_domain": domain_text(with_help=language == "alfworld"),
        "grammar": grammar_text(language, "put a hot apple in fridge"),
        "pddl_problem": PROBLEM,
        "solvable": True,
        "walkthrough": [],
        **changes,
    }


def edited(key: str, old: str, new: str) -> dict[str, object]:
    """The kitchen with one text edited."""
    data = kitchen()
    text = str(data[key])
    assert old in text
    return {**data, key: text.replace(old, new)}
