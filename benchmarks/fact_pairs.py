"""Pairs of statements that say the same and pairs that do not, and which thresholds tell them apart.

Written for this: "same" are two ways people say one thing, "other" differ in one thing that matters (a number, a name,
a place, a denial, whose it is, when), or are about the same subject. None comes from a benchmark.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import product

import numpy as np
from rich.table import Table

from benchmarks.report import Report
from memos.backends.encoders.minilm import MiniLmEmbedder
from memos.core.text.matching import contains_words, contradicts, overlap, words
from memos.scheduler import consolidation as consolidate

SAME: tuple[tuple[str, str], ...] = (
    ("I play the violin in an orchestra.", "I'm playing violin in the orchestra."),
    ("I have two cats.", "We have 2 cats at home."),
    ("My daughter goes to the Lycee Carnot.", "My daughter is going to Lycee Carnot now."),
    ("I run five kilometres every Monday.", "Every Monday I run 5 kilometres."),
    ("I am learning to play chess.", "I'm still learning chess."),
    ("I am allergic to peanuts.", "I have a peanut allergy."),
    ("I drink my coffee without sugar.", "Coffee without sugar, that is how I drink it."),
    ("I grew up on a farm near Toulouse.", "I grew up near Toulouse, on a farm."),
    ("My brother is a firefighter.", "My brother works as a firefighter."),
    ("I bought a red bicycle.", "I've bought a bicycle, a red one."),
    ("I am training for the marathon in October.", "I'm training for a marathon in October."),
    ("I read mostly science fiction novels.", "I mostly read science fiction."),
    ("I volunteer at the animal shelter on Sundays.", "On Sundays I'm volunteering at the animal shelter."),
    ("My wife is pregnant with twins.", "My wife is expecting twins, she is pregnant."),
    ("I cook Thai food a lot.", "I cook a lot of Thai food."),
    ("I keep bees in my garden.", "I'm keeping bees in the garden."),
    ("I broke my left arm while skiing.", "While skiing I broke my left arm."),
    ("I collect old maps of Italy.", "I'm collecting old Italy maps."),
    ("I studied physics in Vienna.", "I did study physics in Vienna."),
    ("I never eat before noon.", "I don't eat before noon."),
    ("My dog Bruno is twelve years old.", "Bruno, my dog, is 12 years old."),
    ("I paint watercolours of mountains.", "I paint mountains in watercolour."),
    ("I have a meeting with the tax adviser every March.", "Every March I'm meeting the tax adviser."),
    ("I do not like horror films.", "I don't like horror films at all."),
    ("We are planning a trip to Iceland.", "We're planning an Iceland trip."),
    ("I want to open a bakery.", "I'd like to open a bakery one day."),
    ("I sing in a choir on Thursdays.", "On Thursdays I sing in the choir."),
    ("I wrote my thesis about coral reefs.", "My thesis was about coral reefs, I wrote it."),
    ("My car needs new brakes.", "The brakes of my car need replacing, new brakes."),
    ("I take the train to work.", "I take the train when I go to work."),
    ("I have a scar on my knee.", "There's a scar on my knee."),
    ("I am afraid of heights.", "Heights, I'm afraid of them."),
    ("I build model ships.", "I'm building model ships."),
    ("I sleep badly when it is full moon.", "At full moon I sleep badly."),
    ("I got my pilot licence in 2019.", "In 2019 I got the pilot licence."),
    ("I have lived abroad for six years.", "I've lived abroad for 6 years."),
    ("我每天早上跑步。", "我每天早上都跑步。"),
    ("我有两只猫。", "我家有两只猫。"),
    ("我在学习弹钢琴。", "我正在学习弹钢琴。"),
    ("我不吃辣的东西。", "辣的东西我不吃。"),
)
OTHER: tuple[tuple[str, str], ...] = (
    ("I have two cats.", "I have three cats."),
    ("I have two cats.", "I have two dogs."),
    ("I play the violin in an orchestra.", "I play the cello in an orchestra."),
    ("My daughter goes to the Lycee Carnot.", "My son goes to the Lycee Carnot."),
    ("I run five kilometres every Monday.", "I run ten kilometres every Monday."),
    ("I run five kilometres every Monday.", "I run five kilometres every Friday."),
    ("I am allergic to peanuts.", "I am not allergic to peanuts."),
    ("I am allergic to peanuts.", "I am allergic to pollen."),
    ("I grew up on a farm near Toulouse.", "I grew up on a farm near Lille."),
    ("My brother is a firefighter.", "My sister is a firefighter."),
    ("My brother is a firefighter.", "My brother is a nurse."),
    ("I bought a red bicycle.", "I sold a red bicycle."),
    ("I bought a red bicycle.", "I bought a blue bicycle."),
    ("I am training for the marathon in October.", "I am training for the marathon in April."),
    ("I like horror films.", "I don't like horror films."),
    ("I volunteer at the animal shelter on Sundays.", "I volunteer at the animal shelter on Saturdays."),
    ("My dog Bruno is twelve years old.", "My dog Rex is twelve years old."),
    ("My dog Bruno is twelve years old.", "My dog Bruno is thirteen years old."),
    ("I studied physics in Vienna.", "I studied physics in Berlin."),
    ("I studied physics in Vienna.", "I studied chemistry in Vienna."),
    ("We are planning a trip to Iceland.", "We are planning a trip to Norway."),
    ("We are planning a trip to Iceland.", "We came back from a trip to Iceland."),
    ("I want to open a bakery.", "I opened a bakery."),
    ("I want to open a bakery.", "I want to close the bakery."),
    ("I sing in a choir on Thursdays.", "I used to sing in a choir on Thursdays."),
    ("My wife is pregnant with twins.", "My sister is pregnant with twins."),
    ("I got my pilot licence in 2019.", "I got my pilot licence in 2021."),
    ("I drink my coffee without sugar.", "I drink my coffee with sugar."),
    ("I take the train to work.", "I take the bus to work."),
    ("I keep bees in my garden.", "I keep chickens in my garden."),
    ("I broke my left arm while skiing.", "I broke my right arm while skiing."),
    ("I paint watercolours of mountains.", "I hang watercolours of mountains in my office."),
    ("I read mostly science fiction novels.", "I write science fiction novels."),
    ("I cook Thai food a lot.", "I order Thai food a lot."),
    ("I have a meeting with Ann on Monday.", "I have a meeting with Bob on Monday."),
    ("My mother lives in Porto.", "My father lives in Porto."),
    ("I am vegetarian.", "I was vegetarian."),
    ("I have a scar on my knee.", "I have a tattoo on my knee."),
    ("我有两只猫。", "我有三只猫。"),
    ("我不吃辣的东西。", "我喜欢吃辣的东西。"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what this part asks for."""
    del parser


def measure(_arguments: argparse.Namespace) -> Report:
    """Return how many of both kinds are told right by thresholds, and what the guards alone catch."""
    embedder = MiniLmEmbedder()
    same, other = _scores(embedder, SAME), _scores(embedder, OTHER)
    table = Table(title="duplicate facts: pairs merged, of those that are and that are not the same")
    for name in ("cosine from", "shared words from", "covered from", f"same ({len(SAME)})", f"others ({len(OTHER)})"):
        table.add_column(name, justify="right")
    grid = {}
    for limits in product((0.8, 0.85, 0.9), (0.33, 0.5, 0.7), (0.0, 0.8, 1.0)):
        right = sum(_merged(score, limits) for score in same)
        wrong = sum(_merged(score, limits) for score in other)
        names = [f"{limit:g}" for limit in limits]
        grid["/".join(names)] = [right, wrong]
        table.add_row(*names, str(right), str(wrong))
    used = f"{consolidate.NEAR_COSINE:g}/{consolidate.NEAR_OVERLAP:g}/1"
    figures = {
        "n": {"same": len(SAME), "other": len(OTHER)},
        "duplicates": {
            "used": used,
            "merged": grid[used],
            "by_cosine_alone": [sum(score[0] >= 0.9 for score in same), sum(score[0] >= 0.9 for score in other)],
            "guards_catch": sum(score[3] for score in other),
            "guards_refuse_same": sum(score[3] for score in same),
            "grid": grid,
        },
    }
    return Report(figures, tables=[table])


Score = tuple[float, float, float, bool]
"""Cosine, share of words, part of the shorter one's words that the other has, whether a guard refuses."""


def _scores(embedder: MiniLmEmbedder, pairs: Sequence[tuple[str, str]]) -> list[Score]:
    vectors = embedder.embed_documents([f"[2026-03-02 Mon] Ann: {text}" for pair in pairs for text in pair])
    cosines = np.einsum("ij,ij->i", vectors[::2], vectors[1::2])
    return [
        (float(cosine), overlap(words(one), words(two)), contains_words(words(one), words(two)), contradicts(one, two))
        for cosine, (one, two) in zip(cosines, pairs, strict=True)
    ]


def _merged(score: Score, limits: tuple[float, float, float]) -> bool:
    return not score[3] and all(value >= limit for value, limit in zip(score, limits, strict=False))
