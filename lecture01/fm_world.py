"""A small invented world, and the text about it that the models of this course learn from.

The text is made of lines of three sorts, mixed:

- *portraits* tell facts about people and places: who lives where, which river a town lies on. A fact can't be guessed,
  only memorised, and it comes back in many sentences, each time with other facts around it, or as an answer;
- *stories* say who has which thing and then ask. The answer stands a few words earlier;
- *exercises* copy words and codes, or calculate. The answer follows from the line itself.

Stories and exercises are made up anew each time, so a model that does them well has learned to look back in the text,
and to look back by distance (one character, one copy) rather than at a fixed position.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")

LETTERS = "abcdefghijklmnopqrstuvwxyz"
CODE_SIGNS = LETTERS + LETTERS.upper() + "0123456789"
ALPHABET = "\n " + CODE_SIGNS + '.,:;?"+-*=<>()'

TRAIN_CHARS = 200_000
VAL_CHARS = 10_000
N_PEOPLE = 10
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


class Dice:
    """Random choices from a seed, the same on every platform and Python version.

    Only of `Random.random` does Python promise to keep the sequence; `choice`, `sample` and `shuffle` may change.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def below(self, n: int) -> int:
        """A whole number from 0 to n − 1."""
        return int(self._random() * n)

    def pick(self, options: Sequence[Item]) -> Item:
        """One of `options`."""
        return options[self.below(len(options))]

    def deal(self, options: Sequence[Item], k: int) -> list[Item]:
        """k different ones of `options`, in random order."""
        rest = list(options)
        return [rest.pop(self.below(len(rest))) for _ in range(k)]


@dataclass(frozen=True)
class Entry:
    """A person or a place: the full name, the first name (a place has only one), and the facts, as parts of a sentence.

    `facts` maps what a fact is about to how it is told: {"home": "lives in Hosford", …}.
    """

    full: str
    name: str
    facts: dict[str, str]


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
        """About 10,000 characters to measure on, in lines of the same kinds.

        The share of its lines that stand in the training text too is 0: every fact can be told in more than one way
        (beside other facts, by another person), so `build_world` drops whatever has been told already.
        """
        return self._val


def build_world(seed: int = 0) -> World:
    """The world of `seed`, a whole number from 0 up (anything else: `ValueError`)."""
    if not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed = {seed!r} must be a whole number from 0 up")
    dice = Dice(seed)
    people, places = make_people_and_places(dice)
    # Validation comes first: as a fair sample. Drawn last, it would be short of whatever is often told.
    val = make_lines(dice, people, places, VAL_CHARS, told=())
    train = make_lines(dice, people, places, TRAIN_CHARS, told=set(val))
    return World(seed, people, places, "\n".join(train) + "\n", "\n".join(val) + "\n")


def make_people_and_places(dice: Dice) -> tuple[list[Entry], list[Entry]]:
    """Everybody and every place, with the facts about them."""
    towns = new_names(dice, N_PLACES, PLACE_ENDS)
    rivers = new_names(dice, N_PLACES // 2, RIVER_ENDS)
    names = new_names(dice, N_PEOPLE, FIRST_NAME_ENDS)
    full_names = [f"{first} {last}" for first, last in zip(names, new_names(dice, N_PEOPLE, LAST_NAME_ENDS))]
    people = [
        Entry(
            full,
            name,
            {
                "home": f"lives in {dice.pick(towns)}",
                "job": f"works as a {dice.pick(JOBS)}",
                "pet": f"keeps a {dice.pick(COLOURS)} {dice.pick(ANIMALS)}",
                "food": f"likes to eat {dice.pick(FOODS)}",
                "music": f"plays the {dice.pick(INSTRUMENTS)}",
                "birth": f"was born in {1900 + dice.below(100)}",
            },
        )
        for full, name in zip(full_names, names)
    ]
    places = [
        Entry(
            town,
            town,
            {
                "river": f"lies on the river {dice.pick(rivers)}",
                "goods": f"is known for its {dice.pick(GOODS)}",
                "mayor": f"is governed by {dice.pick(full_names)}",
                "birth": f"was founded in {1100 + dice.below(700)}",
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


def make_lines(dice: Dice, people: list[Entry], places: list[Entry], n_chars: int, told: Collection[str]) -> list[str]:
    """Lines that are not in `told`, as many as give `n_chars` characters (the last line may go beyond)."""
    lines: list[str] = []
    size = 0
    while size < n_chars:
        line = dice.pick(LINE_KINDS)(dice, people, places)
        if line not in told:
            lines.append(line)
            size += len(line) + 1
    return lines


# Portraits


def portrait(dice: Dice, people: list[Entry], places: list[Entry]) -> str:
    """Three facts about a person."""
    who = dice.pick(people)
    a, b, c = dice.deal(list(who.facts.values()), 3)
    return f"{who.full} {a}, {b} and {c}."


def place_portrait(dice: Dice, people: list[Entry], places: list[Entry]) -> str:
    """Three facts about a place."""
    place = dice.pick(places)
    a, b, c = dice.deal(list(place.facts.values()), 3)
    return f"The town of {place.name} {a}, {b} and {c}."


def interview(dice: Dice, people: list[Entry], places: list[Entry]) -> str:
    """A question about a person or a place, and two facts as the answer."""
    asker, about = dice.pick(people), dice.pick(people + places)
    a, b = dice.deal(list(about.facts.values()), 2)
    return f'{asker.name} asks: "What about {about.name}?" Answer: "{about.name} {a} and {b}."'


# Stories


def story(dice: Dice, people: list[Entry], places: list[Entry]) -> str:
    """Two people have a thing each, and the question is about one of them."""
    names = [person.name for person in dice.deal(people, 2)]
    things = dice.deal(THINGS, 2)
    i = dice.below(2)
    question = dice.pick((f"Who has the {things[i]}?", f"What does {names[i]} have?"))
    return (
        f"{names[0]} has the {things[0]} and {names[1]} has the {things[1]}. {question} {names[i]} has the {things[i]}."
    )


# Exercises


def copy_words(dice: Dice, people: list[Entry], places: list[Entry]) -> str:
    """A few words, said twice."""
    words = " ".join(dice.deal(THINGS, 3))
    return f"Copy ({words}): ({words})"


def copy_code(dice: Dice, people: list[Entry], places: list[Entry]) -> str:
    """A random string, said again and again."""
    code = "".join(dice.pick(CODE_SIGNS) for _ in range(2 + dice.below(3)))
    return f"The code is {code}, " + " ".join([code] * 3) + "."


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


LineKind = Callable[[Dice, list[Entry], list[Entry]], str]
# A kind that is named more often comes up more often. About three quarters of the text are portraits.
LINE_KINDS: tuple[LineKind, ...] = (
    (portrait,) * 4 + (place_portrait,) * 2 + (interview,) * 2 + (story, copy_words, copy_code, calculate)
)
