"""A small invented world, and the text about it that the models of this course learn from.

The text is made of lines of three kinds, mixed:

- *facts*: where somebody lives, which river runs through a town. They cannot be guessed, only memorised, and each is
  told in several different sentences;
- *stories*: who holds which thing, with a question at the end. The answer stands a few words earlier;
- *exercises*: copying and reversing strings, looking up a letter, counting on, adding. The answer follows from the line itself.

Stories and exercises are new in every line, so a model that does them well has learned to look back in the text.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

ALPHABET = "\n abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,:;?!'\"-+*=<>()/#"

TRAIN_CHARS = 200_000
VAL_CHARS = 10_000
FACT_SHARE = 0.6
N_PLACES = 10
N_PEOPLE = 20
LEN=0

ONSETS = ("B", "Br", "D", "F", "G", "Gr", "H", "J", "K", "L", "M", "N", "P", "R", "S", "T", "Tr", "V", "W", "Z")
VOWELS = ("a", "e", "i", "o", "u", "ai", "ea", "oo")
MIDDLES = ("l", "ll", "m", "n", "nd", "r", "rt", "s", "st", "v", "k", "b")
FIRST_ENDS = ("a", "e", "in", "is", "o", "us", "y")
LAST_ENDS = ("er", "man", "ow", "sen", "ski", "well", "wick")
PLACE_ENDS = ("dale", "ford", "haven", "holm", "mouth", "stead", "ton", "wold")
RIVER_ENDS = ("a", "ick", "on", "une", "yr")

JOBS = ("baker", "carpenter", "doctor", "fisher", "gardener", "lawyer", "miller", "nurse", "painter", "sailor", "tailor", "teacher", "weaver")
COLOURS = ("black", "brown", "grey", "green", "red", "spotted", "white", "yellow")
ANIMALS = ("cat", "dog", "duck", "goat", "hen", "horse", "mouse", "parrot", "rabbit", "snail")
FOODS = ("bean soup", "cheese", "fried fish", "honey cake", "mushrooms", "pancakes", "pears", "plum pie", "rice", "walnuts")
INSTRUMENTS = ("bagpipe", "cello", "drum", "flute", "guitar", "harp", "piano", "trumpet", "violin")
GOODS = ("bells", "boats", "candles", "clocks", "glass", "hats", "knives", "lace", "paper", "pots", "rope", "salt", "tea", "wool")
DIRECTIONS = ("north", "south", "east", "west")
THINGS = ("bag", "bell", "book", "box", "coin", "cup", "hat", "key", "lamp", "map", "pen", "ring", "rope", "shell")
WHERE = ("on the bridge", "at the market", "by the well", "in the garden", "near the mill", "under the big tree")

# How each kind of fact can be told. {full} and {short} name whom or what it is about, {value} is what has to be known.
TELLINGS = {
    "home": (
        "{full} lives in {value}.",
        "The house of {full} is in {value}.",
        "In {value} lives {full}.",
        "Where does {full} live? In {value}.",
        "If you look for {short}, go to {value}.",
    ),
    "job": (
        "{full} works as a {value}.",
        "{full} is a {value}.",
        "{short} has been a {value} for years.",
        "What does {full} do for a living? {short} is a {value}.",
        "The trade of {full} is that of a {value}.",
    ),
    "pet": (
        "{full} keeps a {value}.",
        "The pet of {full} is a {value}.",
        "{short} would never sell that {value}.",
        "Which animal belongs to {full}? A {value}.",
        "A {value} follows {full} everywhere.",
    ),
    "food": (
        "{full} likes to eat {value}.",
        "{short} could eat {value} all day.",
        "For {full}, nothing is better than {value}.",
        "What should we cook for {full}? Some {value}.",
        "On Sundays {full} eats {value}.",
    ),
    "music": (
        "{full} plays the {value}.",
        "{short} practises the {value} every evening.",
        "You can hear {full} on the {value}.",
        "Which instrument does {full} play? The {value}.",
        "{full} learned the {value} as a child.",
    ),
    "born": (
        "{full} was born in {value}.",
        "{short} came into the world in {value}.",
        "The year of birth of {full} is {value}.",
        "When was {full} born? In {value}.",
    ),
    "friend": (
        "{full} is a friend of {value}.",
        "{short} often writes to {value}.",
        "{full} went to school with {value}.",
        "Whom does {full} trust most? {value}.",
    ),
    "river": (
        "{full} lies on the river {value}.",
        "The river {value} runs through {full}.",
        "Which river runs through {full}? The {value}.",
        "From {full}, boats go down the {value}.",
    ),
    "goods": (
        "{full} is known for its {value}.",
        "People come to {full} to buy {value}.",
        "What is made in {full}? Mostly {value}.",
        "The best {value} are said to come from {full}.",
        "Half of {full} lives on making {value}.",
    ),
    "founded": (
        "{full} was founded in {value}.",
        "The first house of {full} was built in {value}.",
        "How old is {full}? It was founded in {value}.",
    ),
    "mayor": (
        "The mayor of {full} is {value}.",
        "{full} is governed by {value}.",
        "Who is the mayor of {full}? {value}.",
        "In {full} they voted for {value}.",
    ),
    "neighbour": (
        "{full} lies {value}.",
        "You find {full} {value}.",
        "Where is {full}? It lies {value}.",
        "The old road to {full} starts {value}.",
    ),
}


class Dice:
    """Random choices from a seed, the same on every platform and Python version.

    Only `Random.random` has a sequence that Python promises to keep; `choice`, `sample` and `shuffle` may change.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def below(self, n: int) -> int:
        """A whole number from 0 to n − 1."""
        return int(self._random() * n)

    def pick(self, options):
        """One of `options`, a sequence."""
        return options[int(self._random() * len(options))]

    def deal(self, options, k: int) -> list:
        """k different ones of `options`, in random order."""
        rest = list(options)
        return [rest.pop(self.below(len(rest))) for _ in range(k)]

    def shuffle(self, items: list) -> None:
        """Put `items` into random order, in place."""
        for i in range(len(items) - 1, 0, -1):
            j = self.below(i + 1)
            items[i], items[j] = items[j], items[i]

    def string(self, chars: str, shortest: int, longest: int) -> str:
        """A random string over `chars`."""
        return "".join(self.pick(chars) for _ in range(shortest + self.below(longest - shortest + 1)))


@dataclass(frozen=True)
class Fact:
    """One thing that is so in this world: `about` (full and short name) has `value` under the key `kind`."""

    kind: str
    full: str
    short: str
    value: str

    def tellings(self) -> list[str]:
        """Every sentence that tells this fact."""
        return [t.format(full=self.full, short=self.short, value=self.value) for t in TELLINGS[self.kind]]


@dataclass(frozen=True)
class World:
    """An invented world: its people and places by name, the facts about them, and the text that tells of it."""

    seed: int
    people: list[str]
    places: list[str]
    facts: list[Fact]
    _train: str
    _val: str

    def train_text(self) -> str:
        """About 200,000 characters to learn from, in lines."""
        return self._train

    def val_text(self) -> str:
        """About 10,000 characters in lines of the same kinds, to measure on. None of them stands in the training text."""
        return self._val


def build_world(seed: int = 0) -> World:
    """The world of `seed`, a whole number from 0 up (anything else: `ValueError`)."""
    if not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed = {seed!r} must be a whole number from 0 up")
    dice = Dice(seed)
    places = new_names(dice, N_PLACES, PLACE_ENDS)
    first_names = new_names(dice, N_PEOPLE, FIRST_ENDS)
    people = [f"{first} {last}" for first, last in zip(first_names, new_names(dice, N_PEOPLE, LAST_ENDS))]
    facts = make_facts(dice, people, places)

    # Some facts keep one of their tellings for validation, so what is asked there was learned from other sentences.
    tellings = [fact.tellings() for fact in facts]
    n_held_out = min(130, len(tellings))
    held_out = [sentences.pop(dice.below(len(sentences))) for sentences in dice.deal(tellings, n_held_out)]

    told: set[str] = set()
    train = make_text(dice, [s for sentences in tellings for s in sentences], first_names, TRAIN_CHARS, told)
    val = make_text(dice, held_out, first_names, VAL_CHARS, told)
    return World(seed, people, places, facts, train, val)


def new_names(dice: Dice, n: int, endings: tuple[str, ...]) -> list[str]:
    """n different invented names."""
    names: dict[str, None] = {}  # a dict keeps the order; that of a set would differ between runs
    while len(names) < n:
        names[dice.pick(ONSETS) + dice.pick(VOWELS) + dice.pick(MIDDLES) + dice.pick(endings)] = None
    return list(names)


def make_facts(dice: Dice, people: list[str], places: list[str]) -> list[Fact]:
    """What is known of every person and every place."""
    rivers = new_names(dice, len(places) // 3, RIVER_ENDS)
    facts = []
    for person in people:
        short = person.split()[0]
        friend = dice.pick([other for other in people if other != person])
        for kind, value in (
            ("home", dice.pick(places)),
            ("job", dice.pick(JOBS)),
            ("pet", f"{dice.pick(COLOURS)} {dice.pick(ANIMALS)}"),
            ("food", dice.pick(FOODS)),
            ("music", dice.pick(INSTRUMENTS)),
            ("born", str(1900 + dice.below(100))),
            ("friend", friend),
        ):
            facts.append(Fact(kind, person, short, value))
    for place in places:
        neighbour = dice.pick([other for other in places if other != place])
        for kind, value in (
            ("river", dice.pick(rivers)),
            ("goods", dice.pick(GOODS)),
            ("founded", str(1100 + dice.below(700))),
            ("mayor", dice.pick(people)),
            ("neighbour", f"{dice.pick(DIRECTIONS)} of {neighbour}"),
        ):
            facts.append(Fact(kind, place, place, value))
    return facts


def make_text(dice: Dice, sentences: list[str], names: list[str], n_chars: int, told: set[str]) -> str:
    """`sentences` with stories and exercises among them, `n_chars` characters or a few more, one thing a line.

    No line stands in `told`, the lines used up so far, which grows by the new ones.
    """
    lines = list(sentences)
    told.update(lines)
    lines *= max(1, int(n_chars*FACT_SHARE) // (sum(map(len, lines)) + len(lines)))
    size = sum(map(len, lines)) + len(lines)
    while size < n_chars:
        line = dice.pick(TASKS)(dice, names)
        if line not in told:
            told.add(line)
            lines.append(line)
            size += len(line) + 1
    dice.shuffle(lines)
    return "\n".join(lines) + "\n"


LETTERS = "abcdefghijklmnopqrstuvwxyz"
SIGNS = LETTERS + "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def copy_task(dice: Dice, names: list[str]) -> str:
    """A few words, said twice."""
    text = " ".join(dice.deal(THINGS, 3 + dice.below(3)))
    return dice.pick((f"Copy {text}: {text}.", f"#{text} #{text}", f'"{text}" is written "{text}".'))


def code_task(dice: Dice, names: list[str]) -> str:
    """A random string, said several times."""
    text = dice.string(SIGNS, 2, 5)
    return "The code is " + ", ".join([text] * 3) + "."


def reverse_task(dice: Dice, names: list[str]) -> str:
    """A few words, in the other order."""
    words = dice.deal(THINGS, 3)
    return f"Backwards, {' '.join(words)} is {' '.join(words[::-1])}."


def spell_task(dice: Dice, names: list[str]) -> str:
    """A word, spelled letter by letter."""
    text = dice.pick(THINGS) + dice.pick(("", "s"))
    return f"Spell {text} and {dice.pick(names)}: {'-'.join(text)}."


def lookup_task(dice: Dice, names: list[str]) -> str:
    """Numbers given to things, and one of them asked for."""
    keys = dice.deal(THINGS, 3)
    values = dice.deal("123456789", 3)
    asked = dice.below(len(keys))
    pairs = ", ".join(f"{k} = {v}" for k, v in zip(keys, values))
    return f"({pairs}) {keys[asked]}? {values[asked]}"


def sum_task(dice: Dice, names: list[str]) -> str:
    """Two numbers and their sum, difference or product."""
    a, b = 1 + dice.below(20), 1 + dice.below(20)
    if dice.below(3) == 0:
        a, b = 2 + a % 9, 2 + b % 9
        return f"{a} * {b} = {a * b}; {b} * {a} = {a * b}"
    return dice.pick((f"{a} + {b} = {a + b}", f"{a + b} - {b} = {a}", f"What is {a} + {b}? It is {a + b}!"))


def count_task(dice: Dice, names: list[str]) -> str:
    """Whole numbers with a constant step."""
    start, step = dice.below(60), 1 + dice.below(5)
    return "Count on: " + ", ".join(str(start + step * i) for i in range(5))


def compare_task(dice: Dice, names: list[str]) -> str:
    """Two numbers and which is larger, told in both directions."""
    a, b = sorted((dice.below(1000), 1000 + dice.below(1000) * dice.below(2)))
    return f"{a} < {b}, so {b} > {a}."


def story_task(dice: Dice, names: list[str]) -> str:
    """Two or three people with a thing each, and a question about one of them."""
    people = dice.deal(names, 2 + dice.below(2))
    things = dice.deal(THINGS, len(people))
    asked = dice.below(len(people))
    scene = ", ".join(f"{p} has a {t}" for p, t in zip(people, things))
    question = dice.pick(
        (
            f"Who has the {things[asked]}? {people[asked]}.",
            f"What does {people[asked]} have? The {things[asked]}.",
            f"The {things[asked]} is with {people[asked]}.",
        )
    )
    return f"{scene}. {question}"


def gift_task(dice: Dice, names: list[str]) -> str:
    """A thing changes hands; who has it now?"""
    giver, taker = dice.deal(names, 2)
    thing, where = dice.pick(THINGS), dice.pick(WHERE)
    return f"{giver} met {taker} {where} and gave away a {thing}. Now {taker} has the {thing}, not {giver}."


TASKS = (copy_task, copy_task, code_task, reverse_task, lookup_task, sum_task, count_task, story_task, story_task, gift_task)
