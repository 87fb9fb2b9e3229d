"""Names that say several things are parsed to their parts, and put together again."""

import re

from hypothesis import given
from hypothesis import strategies as st

from bench.data.load import named_at
from bench.study import registry
from bench.study.names import DataName, ModelName

WORDS = st.from_regex(r"[a-z0-9_-]{1,8}", fullmatch=True)


@given(WORDS, st.lists(WORDS, max_size=4))
def test_a_data_sets_name_is_its_parts(base, words):
    text = ":".join([base, *words])
    name = DataName.parse(text)
    assert (name.base, name.words, str(name)) == (base, tuple(words), text)


@given(WORDS, st.integers(1, 9999), st.lists(WORDS.filter(lambda word: not re.fullmatch(r"\d+px", word)), max_size=3))
def test_the_side_is_read_wherever_it_stands(base, side, words):
    assert DataName.parse(":".join([base, *words, f"{side}px"])).side == side
    assert DataName.parse(":".join([base, f"{side}px", *words])).side == side
    assert DataName.parse(":".join([base, *words])).side is None
    assert DataName.parse(f"{base}:a{side}px").side is None


def test_a_set_is_stored_at_one_size_alone():
    assert named_at("folder:mine:32px:rgb", 64, 1) == "folder:mine:64px:grey"
    assert named_at(named_at("folder:mine", 32, 3), 64, 3) == named_at("folder:mine", 64, 3) == "folder:mine:64px:rgb"


@given(
    st.sampled_from(["ViT-pico/7", "timm:resnet18", "my/own.py:Net"]),
    st.dictionaries(WORDS.filter(str.isalpha), st.integers()),
)
def test_a_models_options_are_what_follows_its_name(base, options):
    name = ModelName.parse("".join([base, *(f":{key}={value}" for key, value in options.items())]))
    assert name == ModelName(base, options)


def test_options_follow_any_registered_name():
    for model in registry.model_names():
        assert ModelName.parse(f"{model}:depth=6:position=none") == ModelName(model, {"depth": 6, "position": "none"})
