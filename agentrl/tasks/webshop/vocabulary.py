"""The words of generated shops: five departments with ten kinds of product each.

The words of level `easy` are single and lower case; in a department none of them stands for two things
(an attribute is no option, no noun is either), so that a word of an instruction says what it is about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of product. `query` is what it is called in an instruction and filed under."""

    noun: str
    query: str
    shelf: tuple[str, str]
    """The two narrower levels of the product category."""
    prices: tuple[int, int]
    axes: tuple[str, ...]
    """Names of its options, out of the department's."""
    uses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Department:
    category: str
    root: str
    kinds: tuple[Kind, ...]
    attributes: tuple[str, ...]
    axes: Mapping[str, tuple[str, ...]]
    easy_attributes: tuple[str, ...]
    easy_axes: Mapping[str, tuple[str, ...]]


COLORS = (
    "black", "white", "navy", "sky blue", "charcoal", "silver", "burgundy", "olive", "forest green",
    "rose", "hot pink", "royal purple", "lavender", "mustard", "orange", "chocolate brown", "camel",
    "ivory", "teal", "coral",
)  # fmt: skip
EASY_COLORS = ("blue", "pink", "gold", "black", "white", "gray", "brown", "purple")

FASHION = Department(
    category="fashion",
    root="Clothing, Shoes & Jewelry",
    kinds=(
        Kind(
            "shirt",
            "button down shirt",
            ("Men", "Shirts"),
            (14, 60),
            ("color", "size", "fit type"),
            ("work", "travel", "weekends"),
        ),
        Kind(
            "dress",
            "summer dress",
            ("Women", "Dresses"),
            (18, 90),
            ("color", "size"),
            ("parties", "the beach", "the office"),
        ),
        Kind(
            "jacket",
            "rain jacket",
            ("Men", "Jackets & Coats"),
            (29, 160),
            ("color", "size"),
            ("hiking", "commuting", "travel"),
        ),
        Kind(
            "socks",
            "ankle socks",
            ("Women", "Socks & Hosiery"),
            (7, 28),
            ("color", "size", "pack"),
            ("running", "the gym", "daily wear"),
        ),
        Kind(
            "boots",
            "winter boots",
            ("Women", "Shoes"),
            (39, 180),
            ("color", "shoe size"),
            ("snow", "hiking", "city walks"),
        ),
        Kind(
            "hat",
            "sun hat",
            ("Women", "Accessories"),
            (11, 45),
            ("color", "size"),
            ("the beach", "gardening", "fishing"),
        ),
        Kind(
            "jeans",
            "straight leg jeans",
            ("Men", "Jeans"),
            (24, 110),
            ("color", "waist", "fit type"),
            ("work", "daily wear", "weekends"),
        ),
        Kind(
            "sandals",
            "slide sandals",
            ("Men", "Shoes"),
            (15, 70),
            ("color", "shoe size"),
            ("the pool", "the beach", "the garden"),
        ),
        Kind(
            "sweater",
            "crew neck sweater",
            ("Women", "Sweaters"),
            (22, 120),
            ("color", "size"),
            ("autumn", "the office", "layering"),
        ),
        Kind(
            "pajamas",
            "pajama set",
            ("Women", "Sleep & Lounge"),
            (19, 65),
            ("color", "size"),
            ("lounging", "winter nights", "travel"),
        ),
    ),
    attributes=(
        "machine wash",
        "dry clean",
        "long sleeve",
        "elastic waist",
        "moisture wicking",
        "quick drying",
        "slim fit",
        "loose fit",
        "cotton blend",
        "polyester spandex",
        "tummy control",
        "high waist",
        "rubber sole",
        "non slip",
        "memory foam",
        "arch support",
        "water resistant",
        "button closure",
        "fleece lined",
        "wrinkle free",
    ),
    axes={
        "color": COLORS,
        "size": ("petite", "small", "medium", "large", "plus size"),
        "fit type": ("regular", "relaxed", "athletic", "big and tall"),
        "shoe size": ("6", "7", "8", "9", "10", "11"),
        "waist": ("30in", "32in", "34in", "36in", "38in"),
        "pack": ("single", "twin pack", "six pack", "dozen"),
    },
    easy_attributes=("soft", "warm", "light", "cotton", "wool", "silk", "slim", "loose"),
    easy_axes={"color": EASY_COLORS, "size": ("small", "medium", "large", "huge")},
)

HOME = Department(
    category="garden",
    root="Home & Kitchen",
    kinds=(
        Kind("lamp", "floor lamp", ("Lighting", "Lamps"), (25, 180), ("color", "height"), ("the living room", "a reading corner", "the bedroom")),
        Kind("chair", "dining chair", ("Furniture", "Chairs"), (45, 320), ("color", "set"), ("the kitchen", "the dining room", "a home office")),
        Kind("table", "coffee table", ("Furniture", "Tables"), (60, 480), ("color", "shape", "surface"), ("the living room", "small flats", "the patio")),
        Kind("rug", "area rug", ("Home Decor", "Rugs"), (22, 260), ("color", "surface", "shape"), ("the hallway", "the bedroom", "the nursery")),
        Kind("pillow", "throw pillow", ("Bedding", "Pillows"), (9, 48), ("color", "surface", "set"), ("the sofa", "the bed", "the porch")),
        Kind("curtains", "blackout curtains", ("Home Decor", "Window Treatments"), (16, 95), ("color", "surface"), ("the bedroom", "the nursery", "a home cinema")),
        Kind("shelf", "wall shelf", ("Furniture", "Shelves"), (18, 140), ("color", "set"), ("the bathroom", "books", "the kitchen")),
        Kind("mirror", "wall mirror", ("Home Decor", "Mirrors"), (27, 210), ("color", "shape"), ("the entry", "the bathroom", "the bedroom")),
        Kind("blanket", "throw blanket", ("Bedding", "Blankets"), (17, 85), ("color", "surface"), ("the sofa", "camping", "winter nights")),
        Kind("clock", "wall clock", ("Home Decor", "Clocks"), (13, 75), ("color", "shape"), ("the kitchen", "the office", "a classroom")),
    ),
    attributes=(
        "easy assemble", "solid wood", "stainless steel", "space saving", "easy clean", "heavy duty",
        "eco friendly", "long lasting", "machine washable", "super soft", "white finish",
        "bronze finish", "tempered glass", "metal legs", "height adjustable", "storage space",
        "scratch resistant", "pet safe", "hand woven", "ready hang",
    ),
    axes={
        "color": COLORS,
        "height": ("4 feet", "5 feet", "6 feet", "desk height"),
        "set": ("single", "pair", "set of four", "set of six"),
        "shape": ("round", "square", "rectangular", "oval"),
        "surface": ("18x18", "24x36", "36x60", "50x70", "60x84"),
    },
    easy_attributes=("wood", "metal", "glass", "tall", "low", "plain", "modern", "heavy"),
    easy_axes={"color": EASY_COLORS, "shape": ("round", "square", "oval", "long")},
)  # fmt: skip

ELECTRONICS = Department(
    category="electronics",
    root="Electronics",
    kinds=(
        Kind("camera", "security camera", ("Camera & Photo", "Video Surveillance"), (28, 240), ("color", "kit"), ("the front door", "the nursery", "a small shop")),
        Kind("speaker", "bluetooth speaker", ("Portable Audio", "Speakers"), (19, 190), ("color", "style"), ("the pool", "parties", "the kitchen")),
        Kind("headphones", "over ear headphones", ("Headphones", "Over-Ear"), (25, 280), ("color", "style"), ("flights", "the office", "gaming")),
        Kind("cable", "hdmi cable", ("Accessories", "Cables"), (6, 45), ("color", "length"), ("a home cinema", "consoles", "meeting rooms")),
        Kind("charger", "wall charger", ("Accessories", "Chargers"), (9, 60), ("color", "power"), ("travel", "the bedside", "the desk")),
        Kind("tablet", "android tablet", ("Computers", "Tablets"), (79, 420), ("color", "storage"), ("reading", "drawing", "school")),
        Kind("keyboard", "mechanical keyboard", ("Computers", "Keyboards"), (29, 170), ("color", "style"), ("gaming", "the office", "travel")),
        Kind("projector", "mini projector", ("Video", "Projectors"), (59, 390), ("color", "style"), ("movie nights", "the garden", "lessons")),
        Kind("router", "wifi router", ("Networking", "Routers"), (35, 230), ("color", "kit"), ("large houses", "gaming", "small offices")),
        Kind("watch", "fitness watch", ("Wearable Technology", "Smartwatches"), (32, 250), ("color", "band"), ("running", "swimming", "sleep tracking")),
    ),
    attributes=(
        "high speed", "plug play", "fast charging", "wireless charging", "noise cancelling",
        "hands free", "easy install", "high definition", "ultra hd", "stereo sound", "quad core",
        "carrying case", "gold plated", "motion detection", "night vision", "usb port",
        "water proof", "dust proof", "long lasting battery", "energy efficient",
    ),
    axes={
        "color": COLORS,
        "kit": ("single", "twin pack", "family kit", "pro kit"),
        "style": ("standard", "deluxe", "travel edition", "studio edition"),
        "length": ("3 feet", "6 feet", "10 feet", "25 feet"),
        "power": ("20w", "45w", "65w", "100w"),
        "storage": ("32gb", "64gb", "128gb", "256gb"),
        "band": ("silicone band", "leather band", "nylon band", "mesh band"),
    },
    easy_attributes=("fast", "smart", "mini", "wireless", "digital", "loud", "quiet", "strong"),
    easy_axes={"color": EASY_COLORS, "power": ("solar", "battery", "cord", "crank")},
)  # fmt: skip

BEAUTY = Department(
    category="beauty",
    root="Beauty & Personal Care",
    kinds=(
        Kind("shampoo", "moisturizing shampoo", ("Hair Care", "Shampoo"), (8, 42), ("scent", "volume"), ("curly hair", "daily care", "dry ends")),
        Kind("soap", "bar soap", ("Skin Care", "Body Soap"), (5, 30), ("scent", "pack"), ("the shower", "guests", "the kitchen sink")),
        Kind("cream", "face cream", ("Skin Care", "Face Moisturizers"), (11, 95), ("scent", "volume"), ("winter", "the night", "the morning")),
        Kind("lipstick", "matte lipstick", ("Makeup", "Lips"), (6, 38), ("color", "pack"), ("weddings", "daily wear", "the stage")),
        Kind("perfume", "eau de parfum", ("Fragrance", "Perfume"), (18, 140), ("scent", "volume"), ("the evening", "the office", "summer")),
        Kind("toothbrush", "electric toothbrush", ("Oral Care", "Toothbrushes"), (15, 120), ("color", "pack"), ("travel", "braces", "the family")),
        Kind("mask", "sheet mask", ("Skin Care", "Face Masks"), (7, 45), ("scent", "pack"), ("a spa night", "tired skin", "travel")),
        Kind("razor", "safety razor", ("Shave & Hair Removal", "Razors"), (9, 60), ("color", "pack"), ("legs", "beards", "travel")),
        Kind("brush", "detangling brush", ("Hair Care", "Brushes"), (6, 35), ("color", "pack"), ("wet hair", "children", "thick hair")),
        Kind("lotion", "body lotion", ("Skin Care", "Body Lotion"), (8, 55), ("scent", "volume"), ("after the bath", "dry elbows", "summer")),
    ),
    attributes=(
        "cruelty free", "sulfate free", "paraben free", "long lasting", "tea tree", "coconut oil",
        "natural ingredients", "sensitive skin", "dry skin", "fine lines", "anti aging",
        "fragrance free", "easy use", "dermatologist tested", "hyaluronic acid", "vitamin c",
        "travel size", "hair growth", "shea butter", "alcohol free",
    ),
    axes={
        "color": COLORS,
        "scent": ("rose garden", "fresh mint", "lemon zest", "vanilla bean", "sandalwood", "eucalyptus", "unscented"),
        "volume": ("60ml", "125ml", "300ml", "500ml"),
        "pack": ("single", "twin pack", "six pack", "salon pack"),
    },
    easy_attributes=("gentle", "natural", "rich", "smooth", "daily", "creamy", "clear", "pure"),
    easy_axes={"scent": ("rose", "mint", "lemon", "vanilla", "coconut", "peach"), "pack": ("single", "double", "triple", "family")},
)  # fmt: skip

GROCERY = Department(
    category="grocery",
    root="Grocery & Gourmet Food",
    kinds=(
        Kind("coffee", "ground coffee", ("Beverages", "Coffee"), (8, 48), ("flavor", "weight"), ("the office", "camping", "slow mornings")),
        Kind("tea", "herbal tea", ("Beverages", "Tea"), (5, 32), ("flavor", "pack"), ("the evening", "iced tea", "guests")),
        Kind("cookies", "shortbread cookies", ("Snacks", "Cookies"), (6, 30), ("flavor", "weight"), ("school lunches", "gifts", "tea time")),
        Kind("crackers", "seed crackers", ("Snacks", "Crackers"), (5, 26), ("flavor", "weight"), ("cheese boards", "hiking", "soup")),
        Kind("chips", "potato chips", ("Snacks", "Chips"), (4, 28), ("flavor", "pack"), ("movie nights", "picnics", "parties")),
        Kind("candy", "hard candy", ("Snacks", "Candy"), (4, 35), ("flavor", "weight"), ("birthdays", "the car", "the office")),
        Kind("sauce", "pasta sauce", ("Pantry", "Sauces"), (5, 29), ("flavor", "weight", "pack"), ("quick dinners", "pizza", "lasagna")),
        Kind("noodles", "instant noodles", ("Pantry", "Noodles"), (6, 33), ("flavor", "pack"), ("students", "camping", "quick lunches")),
        Kind("rice", "jasmine rice", ("Pantry", "Rice"), (7, 55), ("weight", "pack"), ("curries", "sushi nights", "meal prep")),
        Kind("granola", "crunchy granola", ("Breakfast", "Granola"), (6, 27), ("flavor", "weight"), ("yogurt", "hiking", "slow mornings")),
    ),
    attributes=(
        "gluten free", "sugar free", "low carb", "dairy free", "non gmo", "plant based",
        "high protein", "low sodium", "certified organic", "individually wrapped", "ready eat",
        "resealable bag", "kosher certified", "fat free", "soy free", "nut free", "old fashioned",
        "freeze dried", "no artificial colors", "high fiber",
    ),
    axes={
        "flavor": ("sea salt", "honey almond", "dark chocolate", "wild berry", "smoked paprika", "garlic herb", "maple pecan", "classic"),
        "weight": ("200g", "350g", "500g", "900g", "2kg"),
        "pack": ("single", "three pack", "six pack", "dozen"),
    },
    easy_attributes=("sweet", "fresh", "organic", "spicy", "salted", "vegan", "mild", "crisp"),
    easy_axes={"flavor": ("apple", "grape", "honey", "olive", "pear", "ginger"), "pack": ("single", "double", "triple", "family")},
)  # fmt: skip

DEPARTMENTS = (FASHION, HOME, ELECTRONICS, BEAUTY, GROCERY)
KINDS = tuple((department, kind) for department in DEPARTMENTS for kind in department.kinds)
EASY_KINDS = tuple(
    (department, kind) for department in DEPARTMENTS for kind in department.kinds[:4]
)

BRAND_HEADS = (
    "Al", "Bel", "Cor", "Dal", "El", "Fen", "Gar", "Hal", "Ith", "Jor", "Kel", "Lor", "Mar", "Nor",
    "Or", "Pel", "Quin", "Ros", "Sel", "Tor", "Ul", "Vel", "Wen", "Xan", "Yor", "Zel", "Bram", "Cas",
)  # fmt: skip
BRAND_TAILS = (
    "ano", "bria", "cado", "dora", "etta", "fino", "gard", "haus", "ique", "land", "mora", "nova",
    "olux", "pera", "rado", "sio", "tec", "una", "vero", "wick", "ymo", "zora",
)  # fmt: skip
REVIEWS = (
    (5, "Exactly as described, I would buy it again."),
    (5, "Better than the one I had before, and it arrived early."),
    (4, "Good value, the box was a little damaged."),
    (4, "Works well. I would have liked more choice."),
    (3, "It is all right for the price."),
    (2, "Not quite what I expected from the pictures."),
    (1, "I sent it back after a week."),
)
