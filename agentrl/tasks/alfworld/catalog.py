"""What stands in which room, what may lie in what, and what can be done to it.

Facts about AI2-THOR's rooms and ALFRED's affordances (types, containment, heatable and so on are
those of ALFRED's constants; MIT), arranged here by object. Counts are those of real floor plans.
"""

from __future__ import annotations

from dataclasses import dataclass

TABLES = ("CounterTop", "DiningTable", "SideTable", "CoffeeTable")
OPENABLE = frozenset(["Cabinet", "Drawer", "Fridge", "Microwave", "Safe"])


@dataclass(frozen=True, slots=True)
class Thing:
    """`can`: any of `heat`, `cool`, `clean`, `slice`, `hold` (other things); `places`: where."""

    can: frozenset[str]
    places: frozenset[str]


def _thing(can: str, places: str, tables: bool = True) -> Thing:
    return Thing(frozenset(can.split()), frozenset(places.split()) | frozenset(TABLES * tables))


_OFFICE = "Desk Dresser Shelf Drawer"
_SEATS = "Sofa ArmChair Ottoman"
_WASH = "Toilet Cart Shelf Cabinet Drawer"

THINGS: dict[str, Thing] = {
    "Apple": _thing("heat cool clean slice", "Fridge Microwave SinkBasin GarbageCan"),
    "Bread": _thing("heat cool slice", "Fridge Microwave GarbageCan"),
    "Egg": _thing("heat cool clean slice", "Fridge Microwave SinkBasin GarbageCan"),
    "Lettuce": _thing("cool clean slice", "Fridge SinkBasin GarbageCan"),
    "Potato": _thing("heat cool clean slice", "Fridge Microwave SinkBasin GarbageCan"),
    "Tomato": _thing("heat cool clean slice", "Fridge Microwave SinkBasin GarbageCan"),
    "Bowl": _thing("cool clean hold", "Cabinet Fridge Microwave SinkBasin Shelf Dresser Desk"),
    "Cup": _thing("heat cool clean hold", "Cabinet Fridge Microwave SinkBasin Shelf Dresser Desk"),
    "Mug": _thing(
        "heat cool clean hold",
        "Cabinet CoffeeMachine Fridge Microwave SinkBasin Shelf Dresser Desk",
    ),
    "Plate": _thing(
        "heat cool clean hold", "Cabinet Fridge Microwave SinkBasin Shelf Dresser Desk"
    ),
    "Pan": _thing("cool clean hold", "Cabinet Fridge SinkBasin StoveBurner"),
    "Pot": _thing("cool clean hold", "Cabinet Fridge SinkBasin StoveBurner Shelf"),
    "Kettle": _thing("clean", "Cabinet SinkBasin StoveBurner Shelf"),
    "ButterKnife": _thing("clean", "Drawer SinkBasin"),
    "Fork": _thing("clean", "Drawer SinkBasin"),
    "Knife": _thing("clean", "Drawer SinkBasin"),
    "Ladle": _thing("clean", "Drawer Cabinet SinkBasin"),
    "Spatula": _thing("clean", "Drawer SinkBasin"),
    "Spoon": _thing("clean", "Drawer SinkBasin"),
    "DishSponge": _thing("clean", "SinkBasin GarbageCan BathtubBasin " + _WASH),
    "PepperShaker": _thing("", "Cabinet Drawer Shelf"),
    "SaltShaker": _thing("", "Cabinet Drawer Shelf"),
    "WineBottle": _thing("cool", "Cabinet Fridge GarbageCan Shelf Dresser Desk"),
    "SoapBar": _thing("clean", "SinkBasin BathtubBasin GarbageCan " + _WASH),
    "SoapBottle": _thing("", "GarbageCan " + _WASH),
    "SprayBottle": _thing("", "GarbageCan Desk Dresser " + _WASH),
    "ToiletPaper": _thing("", "ToiletPaperHanger GarbageCan " + _WASH),
    "TissueBox": _thing("", "GarbageCan TVStand Desk Dresser " + _WASH),
    "Candle": _thing("", "Desk Dresser " + _WASH),
    "Cloth": _thing("clean", "SinkBasin BathtubBasin GarbageCan LaundryHamper " + _WASH),
    "HandTowel": _thing("", "HandTowelHolder SinkBasin BathtubBasin " + _WASH),
    "AlarmClock": _thing("", "Desk Dresser Shelf"),
    "BaseballBat": _thing("", "Bed"),
    "BasketBall": _thing("", f"Bed Desk Dresser {_SEATS}"),
    "Book": _thing("", f"Bed Cabinet {_OFFICE} {_SEATS}"),
    "CD": _thing("", f"Safe Cabinet GarbageCan {_OFFICE}"),
    "CellPhone": _thing("", f"Bed Safe {_OFFICE} {_SEATS}"),
    "CreditCard": _thing("", f"Safe {_OFFICE} {_SEATS}"),
    "KeyChain": _thing("", f"Safe {_OFFICE} {_SEATS}"),
    "Laptop": _thing("", f"Bed Desk Dresser {_SEATS}"),
    "Newspaper": _thing("", f"Bed GarbageCan Cabinet {_OFFICE} {_SEATS}"),
    "Pen": _thing("", f"GarbageCan {_OFFICE}"),
    "Pencil": _thing("", f"GarbageCan {_OFFICE}"),
    "Pillow": _thing("", f"Bed {_SEATS}", tables=False),
    "RemoteControl": _thing("", f"{_OFFICE} {_SEATS}"),
    "Statue": _thing("", "Safe Desk Dresser Shelf Cart"),
    "TennisRacket": _thing("", "Bed Desk Dresser"),
    "Vase": _thing("", "Safe Cabinet Desk Dresser Shelf Cart"),
    "Watch": _thing("", f"Safe {_OFFICE}"),
    "WateringCan": _thing("", f"Cabinet {_OFFICE}"),
}
LAMP = "DeskLamp"
LAMP_PLACES = frozenset(["Desk", "SideTable", "Dresser", "Shelf", "CoffeeTable", "DiningTable"])


@dataclass(frozen=True, slots=True)
class Room:
    """`receptacles`: type -> (fewest, most) in a real room; `things`: what is found there."""

    receptacles: dict[str, tuple[int, int]]
    things: tuple[str, ...]


ROOMS: dict[str, Room] = {
    "kitchen": Room(
        {
            "Cabinet": (3, 14),
            "CoffeeMachine": (1, 1),
            "CounterTop": (1, 3),
            "DiningTable": (0, 1),
            "Drawer": (2, 8),
            "Fridge": (1, 1),
            "GarbageCan": (1, 1),
            "Microwave": (1, 1),
            "Shelf": (0, 2),
            "SideTable": (0, 1),
            "SinkBasin": (1, 1),
            "StoveBurner": (1, 4),
        },
        (
            *("Apple", "Bread", "Egg", "Lettuce", "Potato", "Tomato", "Bowl", "Cup", "Mug"),
            *("Plate", "Pan", "Pot", "Kettle", "ButterKnife", "Fork", "Knife", "Ladle", "Spatula"),
            *("Spoon", "DishSponge", "PepperShaker", "SaltShaker", "WineBottle", "SoapBottle"),
        ),
    ),
    "bathroom": Room(
        {
            "BathtubBasin": (0, 1),
            "Cabinet": (2, 5),
            "Cart": (0, 1),
            "CounterTop": (1, 2),
            "Drawer": (1, 5),
            "GarbageCan": (1, 1),
            "HandTowelHolder": (1, 2),
            "Shelf": (1, 3),
            "SideTable": (1, 1),
            "SinkBasin": (1, 2),
            "Toilet": (1, 1),
            "ToiletPaperHanger": (1, 1),
        },
        (
            *("SoapBar", "SoapBottle", "SprayBottle", "ToiletPaper", "TissueBox", "Candle"),
            *("Cloth", "HandTowel", "DishSponge"),
        ),
    ),
    "bedroom": Room(
        {
            "ArmChair": (0, 1),
            "Bed": (1, 1),
            "Desk": (1, 2),
            "Drawer": (3, 8),
            "Dresser": (1, 1),
            "GarbageCan": (1, 1),
            "LaundryHamper": (0, 1),
            "Safe": (0, 1),
            "Shelf": (2, 6),
            "SideTable": (1, 2),
        },
        (
            *(
                "AlarmClock",
                "BaseballBat",
                "BasketBall",
                "Book",
                "Bowl",
                "CD",
                "CellPhone",
                "Cloth",
            ),
            *("CreditCard", "KeyChain", "Laptop", "Mug", "Pen", "Pencil", "Pillow"),
            *("TennisRacket", "Vase", "Watch"),
        ),
    ),
    "livingroom": Room(
        {
            "ArmChair": (1, 2),
            "Cabinet": (0, 4),
            "CoffeeTable": (1, 1),
            "DiningTable": (0, 1),
            "Drawer": (2, 6),
            "Dresser": (1, 1),
            "GarbageCan": (1, 1),
            "Ottoman": (0, 1),
            "Safe": (0, 1),
            "Shelf": (1, 4),
            "SideTable": (1, 2),
            "Sofa": (1, 1),
            "TVStand": (1, 1),
        },
        (
            *("Book", "Bowl", "CreditCard", "KeyChain", "Laptop", "Newspaper", "Pen", "Pillow"),
            *("RemoteControl", "Statue", "TissueBox", "Vase", "Watch", "WateringCan"),
        ),
    ),
}
