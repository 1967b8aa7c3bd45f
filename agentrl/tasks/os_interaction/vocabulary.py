"""The words of generated machines: one closed set for every split, so that a small policy can learn it."""

from __future__ import annotations

EASY_ROOT, EASY_OTHER = "/data", "/old"
EASY_NAMES = (
    "notes", "plan", "report", "draft", "memo", "table", "index", "letter", "menu", "diary",
    "budget", "recipe", "guide", "poem",
)  # fmt: skip
EASY_WORDS = (
    "red", "blue", "green", "black", "white", "apple", "bread", "fish", "honey", "olive", "cat", "dog",
    "bird", "horse", "river", "stone",
)  # fmt: skip
EASY_PEOPLE = (
    "anna", "bob", "carl", "eva", "finn", "gina", "hugo", "ivan", "jack", "kate", "lena", "nora",
)  # fmt: skip
EASY_KEYS = ("color", "size", "mode", "host", "level", "owner")
EASY_FOLDERS = ("new", "copy", "store", "trash", "public", "private")

ROOTS = (
    "/srv/shop",
    "/opt/mail",
    "/home/anna/work",
    "/var/www/site",
    "/srv/backup/daily",
    "/srv/maps/data",
)
OTHERS = ("/srv/archive", "/var/spool/inbox", "/home/anna/old", "/opt/store")
NAMES = (
    *EASY_NAMES,
    "invoice",
    "summary",
    "contract",
    "minutes",
    "schedule",
    "inventory",
    "orders",
    "changes",
)
WORDS = (
    *EASY_WORDS, "market", "window", "engine", "garden", "winter", "signal", "border", "camera", "doctor",
    "energy", "harbor", "island",
)  # fmt: skip
PEOPLE = (*EASY_PEOPLE, "omar", "petra", "quinn", "rosa", "sven", "tara", "ulla", "victor")
KEYS = (*EASY_KEYS, "port", "timeout", "user", "language", "retries", "cache_dir")
FOLDERS = (*EASY_FOLDERS, "2023", "2024", "images", "drafts", "shared", "src")
LEVELS = ("error", "info", "warning", "debug")
"""Of log lines."""
MODES = (0o600, 0o640, 0o644, 0o660, 0o664, 0o700, 0o744, 0o750, 0o755)
