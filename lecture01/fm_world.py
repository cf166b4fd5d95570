"""A small invented world, and the text about it that the models of this course learn from.

The text is made of lines of three kinds, mixed:

- *portraits* tell facts about people and places: who lives where, which river runs through a town. A fact can't be
  guessed, only memorised, and it comes back in many sentences, each time with other facts around it;
- *stories* hand things from one person to another and then ask who has what. The answer stands a few words earlier;
- *exercises* copy, reverse, look up, count and add. The answer follows from the line itself.

Stories and exercises are made up anew each time, so a model that does them well has learned to look back in the text,
and to look back by distance (the previous character, the same place in the last copy) rather than by absolute position.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

LETTERS = "abcdefghijklmnopqrstuvwxyz"
CAPITALS = LETTERS.upper()
DIGITS = "0123456789"
ALPHABET = "\n " + LETTERS + CAPITALS + DIGITS + ".,:;?!'\"+-*=<>()#"

TRAIN_CHARS = 200_000
VAL_CHARS = 10_000
N_PEOPLE = 12
N_PLACES = 6

ONSETS = ("B", "D", "F", "G", "H", "J", "K", "L", "M", "N", "P", "R", "S", "T", "V", "W", "Z")
VOWELS = ("a", "e", "i", "o", "u")
MIDDLES = ("l", "m", "n", "nd", "r", "rt", "s", "st", "v", "k")
FIRST_NAME_ENDS = ("a", "in", "o", "us", "y")
LAST_NAME_ENDS = ("man", "sen", "ski", "well", "wick")
PLACE_ENDS = ("dale", "ford", "haven", "mouth", "ton")
RIVER_ENDS = ("a", "on", "une")

JOBS = ("baker", "doctor", "fisher", "gardener", "painter", "sailor", "teacher", "weaver")
COLOURS = ("black", "brown", "grey", "red", "white")
ANIMALS = ("cat", "dog", "goat", "hen", "horse", "parrot")
FOODS = ("bean soup", "cheese", "fish", "honey cake", "pears", "plum pie")
INSTRUMENTS = ("cello", "drum", "flute", "harp", "piano", "violin")
GOODS = ("bells", "boats", "candles", "clocks", "glass", "lace", "paper", "wool")
THINGS = ("bell", "book", "coin", "cup", "hat", "key", "lamp", "map", "pen", "ring")

# What can be known of a person and of a place: the question for it and the words that tell it.
PERSON_FACTS = {
    "home": ("where does {name} live", "lives in {value}"),
    "job": ("what is {name} by trade", "works as a {value}"),
    "pet": ("which animal does {name} have", "keeps a {value}"),
    "food": ("what should we cook for {name}", "likes to eat {value}"),
    "music": ("which instrument does {name} play", "plays the {value}"),
    "born": ("when was {name} born", "was born in {value}"),
}
PLACE_FACTS = {
    "river": ("which river runs through {name}", "lies on the river {value}"),
    "goods": ("what is made in {name}", "is known for its {value}"),
    "founded": ("how old is {name}", "was founded in {value}"),
    "mayor": ("who is the mayor of {name}", "is governed by {value}"),
}


class Dice:
    """Random choices from a seed, the same on every platform and Python version.

    Only of `Random.random` does Python promise to keep the sequence; `choice`, `sample` and `shuffle` may change.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def below(self, n: int) -> int:
        """A whole number from 0 to n − 1."""
        return int(self._random() * n)

    def pick(self, options: Sequence[T]) -> T:
        """One of `options`."""
        return options[int(self._random() * len(options))]

    def deal(self, options: Sequence[T], k: int) -> list[T]:
        """k different ones of `options`, in random order."""
        rest = list(options)
        return [rest.pop(self.below(len(rest))) for _ in range(k)]


@dataclass(frozen=True)
class Entry:
    """A person or a place: the full name, the name for short, and what is known, as {kind: value}."""

    full: str
    short: str
    kinds: dict[str, tuple[str, str]]
    known: dict[str, str]

    def question(self, kind: str) -> str:
        """The question for one of the facts, with the short name."""
        return self.kinds[kind][0].format(name=self.short)

    def clause(self, kind: str) -> str:
        """The words that tell one of the facts, without the name."""
        return self.kinds[kind][1].format(value=self.known[kind])


@dataclass(frozen=True)
class World:
    """An invented world: its people, its places, and the text that tells of them."""

    seed: int
    people: list[Entry]
    places: list[Entry]
    _train: str
    _val: str

    def train_text(self) -> str:
        """About 200,000 characters to learn from, in lines."""
        return self._train

    def val_text(self) -> str:
        """About 10,000 characters of the same kinds to measure on, none of whose lines stands in the training text."""
        return self._val


def build_world(seed: int = 0) -> World:
    """The world of `seed`, a whole number from 0 up (anything else: `ValueError`)."""
    if not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed = {seed!r} must be a whole number from 0 up")
    dice = Dice(seed)
    people, places = make_people_and_places(dice)
    train = make_lines(dice, people, places, TRAIN_CHARS, taken=frozenset())
    val = make_lines(dice, people, places, VAL_CHARS, taken=frozenset(train))
    return World(seed, people, places, "\n".join(train) + "\n", "\n".join(val) + "\n")


def make_lines(
    dice: Dice, people: list[Entry], places: list[Entry], n_chars: int, taken: frozenset[str]
) -> list[str]:
    """Lines, none of them in `taken`, that come to `n_chars` characters or a few more with their line ends."""
    lines: list[str] = []
    size = 0
    while size < n_chars:
        line = dice.pick(LINES)(dice, people, places)
        if line not in taken:
            lines.append(line)
            size += len(line) + 1
    return lines


def make_people_and_places(dice: Dice) -> tuple[list[Entry], list[Entry]]:
    """Everybody and every place, with all that is known of them."""
    towns = new_names(dice, N_PLACES, PLACE_ENDS)
    rivers = new_names(dice, N_PLACES // 2, RIVER_ENDS)
    firsts = new_names(dice, N_PEOPLE, FIRST_NAME_ENDS)
    fulls = [f"{first} {last}" for first, last in zip(firsts, new_names(dice, N_PEOPLE, LAST_NAME_ENDS))]
    people = [
        Entry(
            full,
            first,
            PERSON_FACTS,
            {
                "home": dice.pick(towns),
                "job": dice.pick(JOBS),
                "pet": f"{dice.pick(COLOURS)} {dice.pick(ANIMALS)}",
                "food": dice.pick(FOODS),
                "music": dice.pick(INSTRUMENTS),
                "born": str(1900 + dice.below(100)),
            },
        )
        for full, first in zip(fulls, firsts)
    ]
    places = [
        Entry(
            town,
            town,
            PLACE_FACTS,
            {
                "river": dice.pick(rivers),
                "goods": dice.pick(GOODS),
                "founded": str(1100 + dice.below(700)),
                "mayor": dice.pick(fulls),
            },
        )
        for town in towns
    ]
    return people, places


def new_names(dice: Dice, n: int, endings: Sequence[str]) -> list[str]:
    """n different invented names."""
    names: dict[str, None] = {}  # a dict keeps the order; that of a set would differ between runs
    while len(names) < n:
        names[dice.pick(ONSETS) + dice.pick(VOWELS) + dice.pick(MIDDLES) + dice.pick(endings)] = None
    return list(names)


def portrait(dice: Dice, people: list[Entry], places: list[Entry]) -> str:
    """Three facts about a person."""
    it = dice.pick(people)
    a, b, c = (it.clause(kind) for kind in dice.deal(list(it.kinds), 3))
    return f"{it.full} {a}, {b} and {c}."


def place_portrait(dice: Dice, people: list[Entry], places: list[Entry]) -> str:
    """Two facts about a place and what a traveller makes of it."""
    it = dice.pick(places)
    a, b = (it.clause(kind) for kind in dice.deal(list(it.kinds), 2))
    return f"The town of {it.full} {a} and {b}."


def rumour(dice: Dice, people: list[Entry], places: list[Entry]) -> str:
    """Two facts about a person, as somebody else tells them."""
    it, teller = dice.deal(people, 2)
    a, b = (it.clause(kind) for kind in dice.deal(list(it.kinds), 2))
    return f"{teller.short} says that {it.full} {a} and {b}."


def interview(dice: Dice, people: list[Entry], places: list[Entry]) -> str:
    """A question about a person or a place, and the answer."""
    it, asker = dice.pick(people + places), dice.pick(people)
    a, b = (it.clause(kind) for kind in dice.deal(list(it.kinds), 2))
    return f'{asker.short} asks: "What about {it.short}?" Answer: "{it.short} {a} and {b}."'


def story(dice: Dice, people: list[Entry], places: list[Entry]) -> str:
    """Two people have a thing each, and the question is about one of them."""
    names = [person.short for person in dice.deal(people, 2)]
    things = dice.deal(THINGS, 2)
    asked = dice.below(2)
    scene = f"{names[0]} has the {things[0]} and {names[1]} has the {things[1]}."
    return scene + dice.pick(
        (
            f" Who has the {things[asked]}? {names[asked]} has the {things[asked]}.",
            f" What does {names[asked]} have? {names[asked]} has the {things[asked]}.",
        )
    )


def gift(dice: Dice, people: list[Entry], places: list[Entry]) -> str:
    """A thing changes hands."""
    giver, taker = (person.short for person in dice.deal(people, 2))
    thing = dice.pick(THINGS)
    return f"{giver} gave {taker}'s friend the {thing}! Now the friend of {taker} has the {thing}, not {giver}."


def copy_words(dice: Dice, people: list[Entry], places: list[Entry]) -> str:
    """A few words, said twice."""
    words = " ".join(dice.deal(THINGS, 3))
    return f"#copy {words} #copy {words}"


def copy_code(dice: Dice, people: list[Entry], places: list[Entry]) -> str:
    """A random string, said again and again."""
    code = "".join(dice.pick(CAPITALS + DIGITS) for _ in range(2 + dice.below(3)))
    return f"The code is {code}, " + " ".join([code] * 3) + "."


def reverse_words(dice: Dice, people: list[Entry], places: list[Entry]) -> str:
    """A few words, and again from the last to the first."""
    words = dice.deal(THINGS, 3)
    return f"From behind, {'-'.join(words)} is {'-'.join(words[::-1])}."


def look_up(dice: Dice, people: list[Entry], places: list[Entry]) -> str:
    """Three things have a number each, and one of them is asked for."""
    things, numbers = dice.deal(THINGS, 3), dice.deal(DIGITS, 3)
    asked = dice.below(3)
    pairs = ", ".join(f"{thing} = {number}" for thing, number in zip(things, numbers))
    return f"({pairs}) The {things[asked]} is {numbers[asked]}."


def calculate(dice: Dice, people: list[Entry], places: list[Entry]) -> str:
    """A sum, a difference, a product or a comparison of small numbers."""
    a, b = 1 + dice.below(12), 1 + dice.below(12)
    return dice.pick(
        (
            f"{a} + {b} = {a + b} and {b} + {a} = {a + b}.",
            f"{a + b} - {b} = {a} and {a + b} - {a} = {b}.",
            f"{a} * {b} = {a * b}; {b} * {a} = {a * b}.",
            f"{a} < {a + b}; {a + b} > {a}.",
        )
    )


def count_on(dice: Dice, people: list[Entry], places: list[Entry]) -> str:
    """Whole numbers with a constant step."""
    start, step = dice.below(50), 1 + dice.below(3)
    return "Count on: " + ", ".join(str(start + step * i) for i in range(6)) + "."


Teller = Callable[[Dice, list[Entry], list[Entry]], str]
LINES: tuple[Teller, ...] = (portrait,)*4+(place_portrait,)*2+(interview,)*2+(story,copy_words,copy_code,calculate)
