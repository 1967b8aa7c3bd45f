"""The ALFRED household domain: which actions this engine plays, and the proof that a game has them.

The engine carries the rules as code. A game brings its own copy of the domain, so each of its
actions is compared with ours; a game with other rules is refused, never played wrongly.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from importlib import resources
from string import Template

from agentrl.errors import DataError
from agentrl.tasks.alfworld.pddl import Expression, read, sections, show

HELP_ACTION = "  (:action help :parameters (?a - agent) :precondition () :effect (checked ?a))\n"

PARAMETERS = {
    "look": ("a", "l"),
    "inventory": ("a",),
    "help": ("a",),
    "examinereceptacle": ("a", "r"),
    "examineobject": ("a", "o"),
    "gotolocation": ("a", "lstart", "lend", "r"),
    "openobject": ("a", "l", "r"),
    "closeobject": ("a", "l", "r"),
    "pickupobject": ("a", "l", "o", "r"),
    "putobject": ("a", "l", "o", "r", "ot", "rt"),
    "cleanobject": ("a", "l", "r", "o"),
    "heatobject": ("a", "l", "r", "o"),
    "coolobject": ("a", "l", "r", "o"),
    "toggleobject": ("a", "l", "o", "r"),
    "sliceobject": ("a", "l", "co", "ko"),
}
"""Action -> its parameters in the order of the domain, as the grammar names them."""

_CHANGING = """atlocation objectatlocation inreceptacle opened holds holdsany checked
isclean ishot iscool istoggled ison issliced"""
CHANGING = frozenset(_CHANGING.split())
"""Predicates that some action changes; all others hold or fail for the whole game."""

# The original's first branch types a variable "location," and so applies to nothing.
_EXAMINE_WITH_DEAD_BRANCH = """(:action examineObject :parameters (?a - agent ?o - object)
  :precondition (or (holds ?a ?o) (exists (?l - location, ?r - receptacle)
    (and (atLocation ?a ?l) (receptacleAtLocation ?r ?l) (inReceptacle ?o ?r)
      (or (not (openable ?r)) (opened ?r)))))
  :effect (checked ?o))"""


def domain_text(with_help: bool) -> str:
    """Our domain file, as generated games carry it."""
    text = resources.files(__package__).joinpath("domain.pddl").read_text(encoding="utf-8")
    return Template(text).substitute(help=HELP_ACTION if with_help else "")


@lru_cache(maxsize=16)
def check_domain(text: str) -> tuple[frozenset[str], Mapping[str, int]]:
    """The actions of a game's domain, and the arity of each predicate; refuses other rules."""
    expression = read(text)
    known = _reference()
    actions = set()
    for part in expression:
        if not isinstance(part, tuple) or not part or part[0] != ":action":
            continue
        name = str(part[1]) if len(part) > 1 else ""
        if name not in known:
            raise DataError(f"action '{name}' is not of the ALFRED domain that this engine plays")
        if _canonical_action(part) not in known[name]:
            raise DataError(
                f"action '{name}' differs from the ALFRED domain that this engine plays"
            )
        actions.add(name)
    if "gotolocation" not in actions:
        raise DataError("no action 'GotoLocation': not the ALFRED domain that this engine plays")
    predicates = sections(expression).get(":predicates", ())
    return frozenset(actions), {
        str(one[0]): sum(str(term).startswith("?") for term in one[1:])
        for one in predicates
        if isinstance(one, tuple) and one
    }


@cache
def _reference() -> dict[str, set[Expression]]:
    own = [part for part in read(domain_text(True)) if isinstance(part, tuple) and part]
    actions = [part for part in own if part[0] == ":action"]
    out = {str(action[1]): {_canonical_action(action)} for action in actions}
    out["examineobject"].add(_canonical_action(read(_EXAMINE_WITH_DEAD_BRANCH)))
    return out


def _canonical_action(action: tuple[Expression, ...]) -> Expression:
    parts = dict(zip(action[2::2], action[3::2], strict=False))
    return (
        parts.get(":parameters", ()),
        _canonical(parts.get(":precondition", ())),
        _canonical(parts.get(":effect", ())),
    )


def _canonical(expression: Expression) -> Expression:
    """The same formula however it is ordered or wrapped; costs are left out."""
    if isinstance(expression, str) or not expression:
        return expression
    head, *rest = expression
    if head == "exists":
        return (head, rest[0], *map(_canonical, rest[1:]))
    parts = [_canonical(part) for part in rest]
    if head not in ("and", "or"):
        return (head, *parts)
    kept = [part for part in parts if part and part[0] != "increase"]
    return kept[0] if len(kept) == 1 else (head, *sorted(kept, key=show))
