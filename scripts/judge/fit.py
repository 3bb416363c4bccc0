"""Fit the judge of `memos.memcube.judge` to the stories beside this script, and write its weights.

    python scripts/judge/fit.py --negatives ../shared/bench/data/locomo_dev.json --out memos/memcube/judge.npz

With `--lives` also to `lives.jsonl.gz`: 120 lives of thirty statements each, in which different things change in like
words; the weights in the package were fitted without them. The stories were written for this purpose by language
models, without sight of any benchmark; `corrections.jsonl.gz` has the sentences by which the thresholds of
`memos.kernel.corrections` were chosen. Long chats in which hardly a statement replaces another (`--negatives`, in
LoCoMo's format) keep the judge from seeing changes everywhere. Needs PyTorch (`make setup-local`); takes about ten
minutes on two cores, nothing but the stories, and prints the share of questions whose first hit is right, by
threefold cross-validation over stories.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from memos import MemOS
from memos.core.text.claims import Claim, Owner, read_claim
from memos.core.text.rendering import with_speaker
from memos.memcube.judge import lost_features, pair_features, question_features

HERE = Path(__file__).parent
MOST = 12  # statements of a story
BEGAN = datetime(2025, 1, 5, 9, tzinfo=UTC)
RANKED = (0, 3, 4)  # question features that change the order by themselves: the score, and about whom it is
NAMES = "Sam Alice Ben Clara Dario Esther Farid 李娜 小王 Uwe Jutta Diego Carmen user Priya Tom Maya Olu".split()  # noqa: SIM905
LONGEST = 30  # words, as `memos.memcube.relations` judges no longer ones
EPOCHS, BATCH, NEGATIVES, NEGATIVE_WEIGHT = 25, 64, 8_000, 8.0
NEAREST, LIVES_WEIGHT = (
    24,
    8.0,
)  # older statements with which one of a life is compared, as in `memos.memcube.relations`


@dataclass(frozen=True, slots=True)
class Example:
    """A question about a story: features of candidates and pairs, vectors, true relations, the wanted statement."""

    story: str
    asked: Any
    pairs: Any
    lost: Any
    vectors: Any
    relations: Any
    wanted: int
    former: bool


def stories(name: str = "stories.jsonl.gz") -> list[dict[str, Any]]:
    """Return the stories, one for each line of the file."""
    with gzip.open(HERE / name, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def examples(memos: MemOS, told: Sequence[dict[str, Any]]) -> Iterator[Example]:
    """Tell each story to a cube of its own, and ask its questions."""
    embedder = memos.embedder
    for story in told:
        speaker = NAMES[zlib.crc32(story["id"].encode()) % len(NAMES)]
        texts = story["statements"]
        memos.cubes.create(story["id"])
        for day, text in enumerate(texts):
            message = {"role": "user", "name": speaker, "content": text, "chat_time": BEGAN + timedelta(days=4 * day)}
            message["chat_time"] = message["chat_time"].isoformat()
            memos.add(message, cube=story["id"], conversation=f"{story['id']}-{day}")
        vectors = embedder.embed_documents([with_speaker(speaker, text) for text in texts])
        claims, cosines, size = [read_claim(text) for text in texts], vectors @ vectors.T, len(texts)
        older_newer = [(older, newer) for newer in range(size) for older in range(newer)]
        pairs = np.zeros((size, size, len(pair_features(claims[0], claims[0], 1.0))), np.float32)
        for older, newer in older_newer:
            pairs[older, newer] = pair_features(claims[older], claims[newer], float(cosines[older, newer]))
        relations = np.zeros((size, size), np.float32)
        for older, newer, kind in story["relations"]:
            relations[older, newer] = kind in ("updates", "ends")
        for question in story["questions"]:
            asked = read_claim(question["ask"])
            lost = np.zeros((size, size, 3), np.float32)
            for older, newer in older_newer:
                lost[older, newer] = lost_features(asked, claims[older], claims[newer])
            former = question["about"] == "past"
            found = _candidates(memos, story["id"], question["ask"], texts, claims, asked)
            yield Example(story["id"], found, pairs, lost, vectors, relations, question["want"], former)


def _candidates(
    memos: MemOS, cube: str, question: str, texts: Sequence[str], claims: Sequence[Claim], asked: Claim
) -> Any:
    hits = {hit.item.memory: hit for hit in memos.search(question, cubes=[cube], top_k=20, explain=True)}
    arms = {text: {arm.arm: arm.score for arm in hit.arms} for text, hit in hits.items()}
    # As they were before what is fitted here changed them.
    moved = {text: sum(boost.gave for boost in hit.boosts if boost.name == "succession") for text, hit in hits.items()}
    scores = {text: hit.score - moved[text] for text, hit in hits.items()}
    cosines = [arms.get(text, {}).get("turn", 0.0) for text in texts]
    best = max(scores.values())
    rows = []
    for text, claim, cosine in zip(texts, claims, cosines, strict=True):
        by_terms = arms.get(text, {}).get("turn_bm25", 0.0)
        score = scores.get(text, 0.0) / best
        rows.append(question_features(asked, claim, score, cosine, max(cosines), by_terms))
    return np.array(rows, np.float32)


def negatives(memos: MemOS, path: Path) -> tuple[torch.Tensor, ...]:
    """Return pairs of near statements of long chats, as features and vectors of the older and the newer one."""
    found: list[tuple[list[float], Any, Any]] = []
    for conversation in json.loads(path.read_text(encoding="utf-8")):
        turns = list(_turns(conversation))
        claims = [read_claim(text) for _, text in turns]
        vectors = memos.embedder.embed_documents([with_speaker(*turn) for turn in turns])
        cosines = vectors @ vectors.T
        for newer, claim in enumerate(claims):
            for older in np.argsort(-cosines[newer, :newer])[:24]:
                own = Owner.SPEAKER in (claim.owner, claims[older].owner) and turns[older][0] != turns[newer][0]
                if max(claim.count, claims[older].count) <= LONGEST and not own:
                    features = pair_features(claims[older], claim, float(cosines[newer, older]))
                    found.append((features, vectors[older], vectors[newer]))
    chosen = np.random.default_rng(1).permutation(len(found))[:NEGATIVES]
    return tuple(torch.tensor(np.array([found[place][part] for place in chosen], np.float32)) for part in range(3))


def near_pairs(memos: MemOS, lives: Sequence[dict[str, Any]]) -> tuple[torch.Tensor, ...]:
    """Return the near pairs of lives, as features, vectors of the older and the newer one, and whether it replaces."""
    found: list[tuple[list[float], Any, Any, float]] = []
    for life in lives:
        speaker, texts = NAMES[zlib.crc32(life["id"].encode()) % len(NAMES)], life["statements"]
        claims = [read_claim(text) for text in texts]
        vectors = memos.embedder.embed_documents([with_speaker(speaker, text) for text in texts])
        cosines = vectors @ vectors.T
        replaced = {(older, newer) for older, newer, _ in life["relations"]}
        for newer, claim in enumerate(claims):
            for older in np.argsort(-cosines[newer, :newer])[:NEAREST].tolist():
                features = pair_features(claims[older], claim, float(cosines[newer, older]))
                found.append((features, vectors[older], vectors[newer], float((older, newer) in replaced)))
    return tuple(torch.tensor(np.array([each[part] for each in found], np.float32)) for part in range(4))


def _turns(tree: Any) -> Iterator[tuple[str, str]]:
    if isinstance(tree, dict) and "speaker" in tree and "text" in tree:
        yield tree["speaker"], tree["text"]
        return
    for part in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from _turns(part)


class Network(nn.Module):
    """Log odds of a pair from its features and, if `vectors`, the two vectors."""

    def __init__(self, mean: Any, scale: Any, asked: int, *, vectors: bool, hidden: int = 24, size: int = 6) -> None:
        super().__init__()
        self.mean, self.scale, self.vectors = torch.tensor(mean), torch.tensor(scale), vectors
        self.newer, self.both = nn.Linear(384, size, bias=False), nn.Linear(384, size, bias=False)
        self.first = nn.Linear(len(mean) + (2 * size if vectors else 0), hidden)
        self.second, self.linear = nn.Linear(hidden, 1), nn.Linear(len(mean), 1)
        self.asked, self.ranked, self.lost = (nn.Linear(n, 1, bias=False) for n in (asked, asked, 3))
        self.drop = nn.Dropout(0.4 if vectors else 0.2)
        for layer in (self.asked, self.ranked, self.lost):
            nn.init.zeros_(layer.weight)
        self.ranked.weight.data[0, 0] = 4.0
        nn.init.constant_(self.second.bias, -3.0)
        self.allowed = torch.tensor([float(place in RANKED) for place in range(asked)])

    def log_odds(self, pairs: torch.Tensor, older: torch.Tensor, newer: torch.Tensor) -> torch.Tensor:
        """Return the log odds of pairs of any shape, before a question is asked."""
        features = (pairs - self.mean) / self.scale
        inputs = [features]
        if self.vectors:
            inputs += [4 * self.newer(newer).expand(*features.shape[:-1], -1), 30 * self.both(older * newer)]
        hidden = torch.relu(self.first(self.drop(torch.cat(inputs, -1))))
        return (self.second(hidden) + self.linear(features))[..., 0]

    def forward(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return each statement's share after succession, the log odds of pairs, and which pairs there are."""
        older, newer = batch.vectors[:, :, None, :], batch.vectors[:, None, :, :]
        odds = self.log_odds(batch.pairs, older, newer)
        there = torch.triu(torch.ones(MOST, MOST), 1) * batch.mask[:, :, None] * batch.mask[:, None, :]
        of_asked = odds + self.asked(batch.asked)[:, None, :, 0] + self.lost(batch.lost)[..., 0]
        links = torch.sigmoid(of_asked) * there
        logits = (self.ranked.weight[0] * self.allowed * batch.asked).sum(-1) + (batch.mask - 1) * 1e4
        shares = torch.softmax(logits, 1)
        now = _passed_on(shares, links, range(MOST))
        before = _passed_on(shares, links.transpose(1, 2), range(MOST - 1, -1, -1))
        return torch.where(batch.former[:, None], before, now), odds, there


def _passed_on(shares: torch.Tensor, links: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    held, kept = list(shares.unbind(1)), {}
    for place in order:
        out = links[:, place, :]
        stays = torch.prod(1 - out, 1)
        parts = out / (out.sum(1, keepdim=True) + 1e-6) * (1 - stays)[:, None]
        kept[place] = held[place] * stays
        for other in range(MOST):
            if other != place:
                held[other] = held[other] + held[place] * parts[:, other]
    return torch.stack([kept[place] for place in range(MOST)], 1)


@dataclass(frozen=True, slots=True)
class Batch:
    """Examples padded to `MOST` statements."""

    asked: torch.Tensor
    pairs: torch.Tensor
    lost: torch.Tensor
    vectors: torch.Tensor
    relations: torch.Tensor
    mask: torch.Tensor
    wanted: torch.Tensor
    former: torch.Tensor

    @classmethod
    def of(cls, given: Sequence[Example]) -> Batch:
        """Pad examples."""

        def padded(name: str, square: bool) -> torch.Tensor:
            first = getattr(given[0], name)
            wide = np.zeros((len(given), MOST, *((MOST,) if square else ()), *first.shape[1 + square :]), np.float32)
            for place, example in enumerate(given):
                array = getattr(example, name)
                wide[(place, *(slice(length) for length in array.shape[: 1 + square]))] = array
            return torch.tensor(wide)

        mask = np.zeros((len(given), MOST), np.float32)
        for place, example in enumerate(given):
            mask[place, : len(example.asked)] = 1
        return cls(
            padded("asked", False),
            padded("pairs", True),
            padded("lost", True),
            padded("vectors", False),
            padded("relations", True),
            torch.tensor(mask),
            torch.tensor([each.wanted for each in given]),
            torch.tensor([each.former for each in given]),
        )


def fit(
    given: Sequence[Example],
    others: tuple[torch.Tensor, ...] | None,
    lived: tuple[torch.Tensor, ...] | None,
    *,
    vectors: bool,
    seed: int,
) -> Network:
    """Fit one network to examples, to pairs of which hardly one is a change, and to the pairs of lives."""
    torch.manual_seed(seed)
    order = np.random.default_rng(seed)
    known = np.concatenate([each.pairs[np.triu_indices(len(each.asked), 1)] for each in given])
    network = Network(known.mean(0), known.std(0) + 1e-6, given[0].asked.shape[1], vectors=vectors)
    asked = [p for name, p in network.named_parameters() if name.partition(".")[0] in ("asked", "ranked", "lost")]
    rest = [p for name, p in network.named_parameters() if name.partition(".")[0] not in ("asked", "ranked", "lost")]
    groups = [{"params": asked, "lr": 0.02, "weight_decay": 1e-3}, {"params": rest, "lr": 4e-3, "weight_decay": 3e-2}]
    optimiser = torch.optim.AdamW(groups)
    steps = EPOCHS * -(-len(given) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, [0.02, 4e-3], total_steps=steps)
    for _ in range(EPOCHS):
        places = order.permutation(len(given))
        for start in range(0, len(places), BATCH):
            batch = Batch.of([given[place] for place in places[start : start + BATCH]])
            shares, odds, there = network(batch)
            loss = -torch.log(shares.gather(1, batch.wanted[:, None])[:, 0] + 1e-4).mean()
            right = nn.functional.binary_cross_entropy_with_logits(odds, batch.relations, reduction="none")
            loss = loss + (right * there).sum() / len(batch.wanted)
            if others is not None:
                some = torch.randint(0, len(others[0]), (256,))
                loss = (
                    loss + NEGATIVE_WEIGHT * nn.functional.softplus(network.log_odds(*(t[some] for t in others))).mean()
                )
            if lived is not None:
                some = torch.randint(0, len(lived[0]), (256,))
                *pairs, replaces = (part[some] for part in lived)
                judged = network.log_odds(*pairs)
                loss = loss + LIVES_WEIGHT * nn.functional.binary_cross_entropy_with_logits(judged, replaces)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    return network.eval()


def right_share(network: Network, given: Sequence[Example]) -> float:
    """Return the share of questions whose first statement is the wanted one."""
    with torch.no_grad():
        shares = network(Batch.of(given))[0]
    return float(np.mean([int(share.argmax()) == each.wanted for share, each in zip(shares, given, strict=True)]))


def weights(networks: Sequence[Network], part: str) -> dict[str, Any]:
    """Return the networks as one with their mean: their hidden layers side by side."""
    count, first = len(networks), networks[0]
    size = first.newer.out_features if first.vectors else 0
    features = len(first.mean)
    wide = []
    for place, network in enumerate(networks):
        own = network.first.weight.detach().numpy().T
        rows = np.zeros((features + 2 * size * count, own.shape[1]), np.float32)
        rows[:features] = own[:features]
        for block in range(2 if size else 0):
            start = features + block * size * count + place * size
            rows[start : start + size] = own[features + block * size : features + (block + 1) * size]
        wide.append(rows)

    def side_by_side(layer: str, times: float) -> Any:
        arrays = [getattr(network, layer).weight.detach().numpy().T * times for network in networks]
        return np.concatenate(arrays, 1) if size else np.zeros((0, 0), np.float32)

    def mean(layer: str) -> Any:
        return np.mean([getattr(network, layer).weight.detach().numpy()[0] for network in networks], 0)

    found = {
        "mean": first.mean.numpy(),
        "scale": first.scale.numpy(),
        "newer": side_by_side("newer", 4),
        "both": side_by_side("both", 30),
        "first": np.concatenate(wide, 1),
        "first_bias": np.concatenate([network.first.bias.detach().numpy() for network in networks]),
        "second": np.concatenate([network.second.weight.detach().numpy()[0] / count for network in networks]),
        "bias": np.mean([network.second.bias.item() + network.linear.bias.item() for network in networks]),
        "linear": mean("linear"),
        "asked": mean("asked"),
        "lost": mean("lost"),
        "ranked": mean("ranked") * first.allowed.numpy(),
    }
    return {f"{part}.{name}": np.asarray(value, np.float32) for name, value in found.items()}


def main() -> None:
    """Fit, print the figure of held-back stories, write the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--negatives", type=Path, help="chats in LoCoMo's format")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--lives", action="store_true", help="fit to the lives, too")
    parser.add_argument("--limit", type=int, help="so many stories alone, for a try")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as folder, MemOS.open(folder) as memos:
        given = list(examples(memos, stories()[: arguments.limit]))
        others = None if arguments.negatives is None else negatives(memos, arguments.negatives)
        lived = near_pairs(memos, stories("lives.jsonl.gz")[: arguments.limit]) if arguments.lives else None
    fold = np.array([zlib.crc32(each.story.encode()) % 3 for each in given])
    shares = []
    for held in range(3):
        network = fit([e for e, f in zip(given, fold, strict=True) if f != held], others, lived, vectors=True, seed=0)
        shares.append(right_share(network, [e for e, f in zip(given, fold, strict=True) if f == held]))
    print(f"right first, held-back stories: {np.mean(shares):.3f}")
    out: dict[str, Any] = {}
    for part, count in (("vectors", arguments.seeds), ("words", 1)):
        networks = [fit(given, others, lived, vectors=part == "vectors", seed=seed) for seed in range(count)]
        out |= weights(networks, part)
    np.savez_compressed(arguments.out, **out)


if __name__ == "__main__":
    main()
