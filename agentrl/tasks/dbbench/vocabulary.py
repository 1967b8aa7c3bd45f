"""The words of generated tables: one closed set for every split, so that a small policy can learn it.

No value of level `easy` starts with a letter group that a common tokenizer splits off after a quote
('s, 't, 'd, 'm, 're, 've, 'll): inside quotes every one of them is the same token everywhere.
No column name is a reserved word.
"""

from __future__ import annotations

EASY_TABLES = (
    "staff", "pets", "books", "films", "cars", "shops", "teams", "boats", "farms", "games",
)  # fmt: skip
EASY_NAMES = (
    "anna", "bob", "carl", "eva", "finn", "gina", "hugo", "ivan", "jack", "kate", "lena", "nora",
    "olga", "paul", "quinn", "walt", "yara", "zoe", "ben", "fay", "greg", "hana", "iris", "joan",
)  # fmt: skip
EASY_CATEGORIES: dict[str, tuple[str, ...]] = {
    "city": ("paris", "rome", "oslo", "cairo", "lima", "bonn", "lyon", "quito", "accra", "porto"),
    "color": ("blue", "green", "pink", "gold", "black", "white", "gray", "brown", "orange", "purple"),
    "job": ("cook", "pilot", "nurse", "clerk", "actor", "baker", "judge", "guard", "farmer", "artist"),
    "food": ("apple", "bread", "cake", "fish", "grape", "honey", "jam", "nut", "olive", "pear"),
}  # fmt: skip
EASY_NUMBERS = ("age", "score", "price", "size", "weight")

RICH_TABLES = (
    "Race Results", "Film Awards", "League Table", "City Statistics", "Concert Tour",
    "School Location", "Player Transfers", "Museum Visitors", "Mountain Huts", "Election Results",
    "book_sales", "ship_register", "radio_stations", "train_stops", "garden_plants",
)  # fmt: skip
RICH_KEYS = (
    "Amsterdam Arena", "Blue Lagoon", "Cedar Point", "Dawn Chorus", "Eagle Rock", "Fort William",
    "Golden Gate", "Harbour View", "Iron Bridge", "Jasmine Court", "King's Cross", "Lake Placid",
    "Maple Leaf", "North Star", "Ocean Drive", "Pine Valley", "Queen's Park", "Red Square",
    "Silver Creek", "Twin Peaks", "Union Station", "Vine Street", "West End", "Yellow River",
    "Zenith Tower", "Ash Grove", "Bell Tower", "Clear Water", "Dry Dock", "Elm Avenue",
    "Fox Hollow", "Grand Canal", "High Bridge", "Inner Ring", "Juniper Hill", "Kite Hill",
    "Long Beach", "Mill Race", "New Forest", "Old Port",
)  # fmt: skip
MESSY_KEYS = (
    "Café Müller", "São Paulo", "Reykjavík", "Málaga–Costa", "Łódź", "Ångström", "O'Brien & Sons",
    'The "Royal"', "A, B and C", "100% Pure", "Nº 5", "Straße 9", "Montréal", "Überlingen",
)  # fmt: skip
RICH_KEY_COLUMNS = ("Title", "Name", "Venue", "Player", "Station", "Entry")
RICH_CATEGORIES: dict[str, tuple[str, ...]] = {
    "Country": ("France", "Norway", "Peru", "New Zealand", "Japan", "South Korea", "Ghana", "Canada"),
    "Result": ("won", "lost", "draw", "retired", "not classified"),
    "Type of surface": ("grass", "clay", "hard", "carpet", "artificial turf"),
    "Opened in": ("spring", "summer", "autumn", "winter"),
    "Status": ("active", "closed", "under repair", "planned"),
    "Home team": ("Athlone Town", "Sporting Club", "Rovers", "United", "Wanderers", "City"),
    "Grade": ("first", "second", "third", "fourth"),
}  # fmt: skip
RICH_NUMBERS = (
    "Points", "Attendance", "Laps", "Year built", "Total seats", "Votes", "Height (m)", "Pages",
)  # fmt: skip
MISSING = ("-", "n/a", "")
"""What a messy table writes where a category is not known."""
