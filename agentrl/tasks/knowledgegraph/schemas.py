"""The little worlds of generated samples: types, relations between them, attributes, names, words.

`EASY` is for policies of a million parameters: every relation, attribute and name is one word, and the
question uses the very words of the relations. `RICH` has Freebase's dotted names, inverses of relations,
names of several words, and says each relation in one or more ways of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agentrl.tasks.knowledgegraph.ontology import Ontology
from agentrl.tasks.knowledgegraph.programs import Kind


@dataclass(frozen=True)
class Schema:
    ontology: Ontology
    phrases: Mapping[str, tuple[str, ...]]
    """Relation -> ways to say what it leads to; `{}` is where from."""
    nouns: Mapping[str, str]
    """Type -> its members in words."""
    extremes: Mapping[str, tuple[str, str]]
    """Attribute -> words for the smallest and the largest value."""
    names: Mapping[str, tuple[str, ...]]
    """Type -> names of its members; a name has one type only."""


def _easy() -> Schema:
    relations = {
        "friend": ("person", "person"), "boss": ("person", "person"), "teacher": ("person", "person"),
        "home": ("person", "city"), "team": ("person", "team"),
        "captain": ("team", "person"), "coach": ("team", "person"), "base": ("team", "city"),
        "rival": ("team", "team"),
        "mayor": ("city", "person"), "land": ("city", "land"), "partner": ("city", "city"),
        "club": ("city", "team"),
        "king": ("land", "person"), "capital": ("land", "city"), "ally": ("land", "land"),
        "squad": ("land", "team"),
    }  # fmt: skip
    attributes: dict[str, tuple[str, Kind]] = {
        "age": ("person", "number"), "height": ("person", "number"), "wins": ("team", "number"),
        "points": ("team", "number"), "size": ("city", "number"), "rent": ("city", "number"),
        "area": ("land", "number"), "wealth": ("land", "number"),
    }  # fmt: skip
    names = {
        "person": "ann bob carl dora emil fay gus hana ivan jane karl lena max nora otto paul quinn "
        "rosa sam tina ugo vera walt yara zoe amir beth cora dan elsa",
        "team": "bears bulls crows cubs ducks eagles foxes hawks lions owls pandas ravens sharks "
        "swans tigers wolves",
        "city": "berlin bonn bruges cairo delhi dover essen genoa graz kiel lagos lima lyon malmo oslo "
        "paris porto riga rome sofia",
        "land": "chile china cuba egypt fiji france ghana india iran italy japan kenya laos mali malta nepal "
        "peru qatar spain togo",
    }  # fmt: skip
    return Schema(
        Ontology(relations, attributes),
        {relation: (f"{relation} of {{}}",) for relation in relations},
        {kind: kind for kind in names},
        {attribute: (f"smallest {attribute}", f"largest {attribute}") for attribute in attributes},
        {kind: tuple(words.split()) for kind, words in names.items()},
    )


_RICH_RELATIONS = """
people.person.birthplace | location.city | the place of birth of {}; the city where {} was born
location.city.people_born_here | people.person | the people born in {}; the natives of {}
people.person.employer | business.company | the employer of {}; the company that {} works for
business.company.staff | people.person | the employees of {}; the people who work for {}
people.person.spouse | people.person | the spouse of {}; the person married to {}
people.person.children | people.person | the children of {}; the people whose parent is {}
people.person.teachers | people.person | the teachers of {}; the people who taught {}
people.person.school | education.school | the school of {}; the school that {} attended
education.school.alumni | people.person | the alumni of {}; the people who attended {}
education.school.headteacher | people.person | the headteacher of {}; the person who runs {}
education.school.town | location.city | the town of {}; the city where one finds {}
education.school.rivals | education.school | the rival schools of {}; the schools that compete with {}
film.film.director | people.person | the director of {}; the person who directed {}
people.person.films_directed | film.film | the films directed by {}; the films that {} made as director
film.film.cast | people.person | the actors in {}; the people who appear in {}
people.person.films_acted_in | film.film | the films with {}; the films in which {} appears
film.film.studio | business.company | the studio behind {}; the company that produced {}
business.company.films | film.film | the films produced by {}; the films that {} paid for
film.film.locations | location.city | the filming locations of {}; the cities where {} was shot
film.film.based_on | book.book | the book behind {}; the book that {} is based on
book.book.adaptations | film.film | the film versions of {}; the films based on {}
film.film.sequel | film.film | the sequel of {}; the film that follows {}
book.book.author | people.person | the author of {}; the person who wrote {}
people.person.books | book.book | the books by {}; the books that {} wrote
book.book.publisher | business.company | the publisher of {}; the company that published {}
book.book.setting | location.city | the setting of {}; the cities in which {} is set
book.book.translators | people.person | the translators of {}; the people who translated {}
business.company.founders | people.person | the founders of {}; the people who founded {}
people.person.companies_founded | business.company | the companies founded by {}; the companies that {} started
business.company.seat | location.city | the seat of {}; the city where {} is based
location.city.companies | business.company | the companies based in {}; the firms of {}
business.company.owners | business.company | the parent companies of {}; the companies that own {}
location.city.mayor | people.person | the mayor of {}; the person who governs {}
location.city.twin_towns | location.city | the twin towns of {}; the cities twinned with {}
location.city.schools | education.school | the schools of {}; the schools one finds in {}
location.city.country | location.country | the country of {}; the country to which {} belongs
location.country.cities | location.city | the cities of {}; the cities one finds in {}
location.country.president | people.person | the president of {}; the head of state of {}
location.country.neighbours | location.country | the neighbours of {}; the countries that border {}
location.country.languages | language.language | the languages of {}; the languages spoken in {}
language.language.countries | location.country | the countries where people speak {}; the countries with the language {}
language.language.relatives | language.language | the relatives of {}; the languages akin to {}
people.person.languages | language.language | the languages of {}; the languages that {} speaks
language.language.speakers | people.person | the speakers of {}; the people who speak {}
"""
_RICH_INVERSES = """
people.person.birthplace location.city.people_born_here
people.person.employer business.company.staff
people.person.school education.school.alumni
film.film.director people.person.films_directed
film.film.cast people.person.films_acted_in
film.film.studio business.company.films
film.film.based_on book.book.adaptations
book.book.author people.person.books
business.company.founders people.person.companies_founded
business.company.seat location.city.companies
education.school.town location.city.schools
location.city.country location.country.cities
location.country.languages language.language.countries
people.person.languages language.language.speakers
"""
_RICH_ATTRIBUTES = """
people.person.birth_date | date | that was born first | that was born last
people.person.height | number | that is the shortest | that is the tallest
film.film.release_date | date | that came out first | that came out last
film.film.length | number | with the shortest running time | with the longest running time
book.book.published | date | that was published first | that was published last
book.book.pages | number | with the fewest pages | with the most pages
business.company.founded | date | that was founded first | that was founded last
business.company.revenue | number | with the lowest revenue | with the highest revenue
location.city.population | number | with the fewest inhabitants | with the most inhabitants
location.city.altitude | number | that lies lowest | that lies highest
location.country.area | number | with the smallest area | with the largest area
location.country.independence | date | that became independent first | that became independent last
education.school.opened | date | that opened first | that opened last
education.school.pupils | number | with the fewest pupils | with the most pupils
language.language.native_speakers | number | with the fewest native speakers | with the most native speakers
"""
_RICH_NOUNS = {
    "people.person": "people", "location.city": "cities", "business.company": "companies",
    "education.school": "schools", "film.film": "films", "book.book": "books",
    "location.country": "countries", "language.language": "languages",
}  # fmt: skip


def _pairs(first: str, second: str, form: str = "{} {}") -> tuple[str, ...]:
    return tuple(form.format(a, b) for a in first.split() for b in second.split())


def _rich() -> Schema:
    rows = [
        [part.strip() for part in row.split("|")] for row in _RICH_RELATIONS.strip().splitlines()
    ]
    inverse = [row.split() for row in _RICH_INVERSES.strip().splitlines()]
    attributes = [
        [p.strip() for p in row.split("|")] for row in _RICH_ATTRIBUTES.strip().splitlines()
    ]
    ontology = Ontology(
        {name: (name.rsplit(".", 1)[0], target) for name, target, _ in rows},
        {
            name: (name.rsplit(".", 1)[0], "date" if kind == "date" else "number")
            for name, kind, _, _ in attributes
        },
        {a: b for pair in inverse for a, b in (pair, pair[::-1])},
    )
    names = {
        "people.person": _pairs(
            "Ada Björn Chloé Dmitri Esra Farah Goran Hiro Inés José Kwame Leïla Mei Nils Olga Priya",
            "Abara Brandt Costa Dubois Eriksen Fontaine Garcia Haddad Ito Jansen O'Brien Petrov Quist "
            "Rossi Silva Tanaka",
        ),
        "location.city": _pairs(
            "North South East West New Old Upper Lower Port Fort", "Arden Bellmoor Carrick Dunholm Elmsworth "
            "Farrow Glenmore Hartley Ironbridge Kestrel",
        ),
        "business.company": _pairs(
            "Acorn Beacon Cobalt Delta Ember Falcon Granite Horizon", "Works Foods Motors Pictures Press Steel",
        ),
        "education.school": _pairs(
            "Ashford Birchwood Crestview Dovecote Eastgate Fairhaven", "Academy College School Institute",
        ),
        "film.film": _pairs(
            "Silent Crimson Hidden Broken Golden Distant Frozen Restless", "Harbour Garden Winter Mirror Station "
            "Voyage River", "The {} {}",
        ),
        "book.book": _pairs(
            "Last First Lost Secret Second Endless", "Letter Island Orchard Lesson Summer Witness", "A {} {}",
        ),
        "location.country": _pairs("Kingdom Republic Union", "Aldoria Bravenia Cortania Drevia Estmark", "{} of {}"),
        "language.language": _pairs("Old Modern High Low", "Aldorian Bravenian Cortanian Drevian"),
    }  # fmt: skip
    return Schema(
        ontology,
        {name: tuple(way.strip() for way in ways.split(";")) for name, _, ways in rows},
        _RICH_NOUNS,
        {name: (least, most) for name, _, least, most in attributes},
        names,
    )


EASY, RICH = _easy(), _rich()
