"""Names of blocks."""

from hypothesis import given
from hypothesis import strategies as st

from memos.core.kv_cache import BLOCK_TOKENS
from memos.memcube.activation.blocks import block_keys, fingerprint_of, usable_blocks

ids = st.lists(st.integers(0, 2**32 - 1), max_size=4 * BLOCK_TOKENS)


@given(ids)
def test_whole_blocks_have_keys_and_the_rest_has_none(tokens):
    keys = block_keys("model", "home", tokens)
    assert len(keys) == len(tokens) // BLOCK_TOKENS
    assert len(set(keys)) == len(keys)


@given(ids, st.integers(0, 3), st.integers(0, BLOCK_TOKENS - 1))
def test_a_changed_token_changes_its_block_and_all_behind_it(tokens, block, offset):
    place = block * BLOCK_TOKENS + offset
    if place >= len(tokens):
        return
    changed = [*tokens[:place], (tokens[place] + 1) % 2**32, *tokens[place + 1 :]]
    before, after = block_keys("model", "home", tokens), block_keys("model", "home", changed)
    assert before[:block] == after[:block]
    assert set(before[block:]).isdisjoint(after[block:])


def test_models_and_tenants_share_nothing():
    tokens = list(range(3 * BLOCK_TOKENS))
    every = [block_keys(model, salt, tokens) for model in ("a", "b") for salt in ("home", "work")]
    assert len({key for keys in every for key in keys}) == 12


def test_a_salt_cannot_pass_for_a_fingerprint():
    tokens = list(range(BLOCK_TOKENS))
    assert block_keys("a", "b", tokens) != block_keys("a\nb", "", tokens)


def test_fingerprints_tell_what_made_them():
    assert fingerprint_of({"dtype": "bf16"}) != fingerprint_of({"dtype": "f32"})
    assert fingerprint_of({"a": 1, "b": 2}) == fingerprint_of({"b": 2, "a": 1})


def test_the_last_token_is_always_computed():
    assert [usable_blocks(n) for n in (0, 1, 63, 64, 65, 128, 129)] == [0, 0, 0, 0, 1, 1, 2]
