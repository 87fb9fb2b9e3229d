"""Numbers as people read them."""

import math

import pytest

from bench.core import formatting as words


@pytest.mark.parametrize(
    "value, text",
    [
        (3.2e12, "3.2 TFLOPs"),
        (1e15, "1 PFLOPs"),
        (4.262e21, "4.26 ZFLOPs"),
        (4.1e20, "410 EFLOPs"),
        (5e8, "500 MFLOPs"),
        (math.nan, "–"),
    ],
)
def test_flops(value: float, text: str) -> None:
    assert words.flops(value) == text


@pytest.mark.parametrize(
    "value, text",
    [(0.000123, "0.000123"), (0, "0"), (1234.5, "1,230"), (0.1, "0.1"), (99.96, "100"), (-3.81e-32, "-3.81e-32")],
)
def test_significant(value: float, text: str) -> None:
    assert words.significant(value) == text


def test_points_and_intervals() -> None:
    assert words.points(0.031, 0.010, 0.052) == "+3.1 points [+1.0, +5.2]"
    assert words.points(-0.0001, -0.02, 0.02) == "0.0 points [−2.0, +2.0]"
    assert words.interval(0.7123, 0.7123 - 0.0131, 0.7123 + 0.0131) == "71.2 ± 1.3"
    assert words.interval(0.7123, 0.6990, 0.7252) == "71.2 ± 1.3"
    assert words.interval(0.9923, 0.9793, 0.9973) == "99.2 −1.3 +0.5"
    assert words.interval(0.5, None, None) == "50.0 ± ?"
    assert words.interval(None, None, None) == "–"


@pytest.mark.parametrize(
    "seconds, text",
    [
        (3.21, "3.2 s"),
        (45.3, "45 s"),
        (119, "119 s"),
        (738, "12.3 min"),
        (18360, "5.1 h"),
        (4e5, "4.63 days"),
        (1e12, "31,700 years"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert words.duration(seconds) == text


def test_join_and_plural() -> None:
    assert words.join(["a", "b", "c"]) == "a, b and c" and words.join([]) == ""
    assert words.plural(1, "seed") == "1 seed" and words.plural(2, "seed") == "2 seeds"


def test_equal_reasons_are_given_once_with_the_number_of_cells() -> None:
    reasons = [*((f"cell-{number}", "No such folder.") for number in range(4)), ("other", "Too large.")]
    assert words.by_reason(reasons) == ["4 runs (cell-0, cell-1, …): No such folder.", "other: Too large."]


@pytest.mark.parametrize(
    "text, shown",
    [
        ("a\tb\nc – ü", "a\tb\nc – ü"),
        ("\x1b[31mred\x9b\x07", "\\x1b[31mred\\x9b\\x07"),
        ("a\rb", "a\\rb"),
    ],
)
def test_what_a_terminal_would_obey_is_written_out(text: str, shown: str) -> None:
    assert words.printable(text) == shown


@pytest.mark.parametrize("exponent", range(-12, 27))
@pytest.mark.parametrize("mantissa", [1.0, 9.9999999, -1.2345678])
def test_a_number_of_any_size_reads_back_to_its_digits(mantissa: float, exponent: int) -> None:
    """Plain in the middle, and as people type it beyond; never "e+03"."""
    value = mantissa * 10.0**exponent
    text = words.compact(value)
    assert float(text.replace(",", "")) == pytest.approx(value, rel=5.1e-4) and "+" not in text
    assert ("e" in text) == (not 1e-4 <= abs(value) < 1e7)


@pytest.mark.parametrize(
    ("value", "text"), [(1e13, "1e13"), (1.68e9, "1.68e9"), (1906.67, "1,907"), (12_346.0, "12,350"), (0.0, "0")]
)
def test_compact(value: float, text: str) -> None:
    assert words.compact(value) == text


def test_numbers_beside_each_other_have_one_unit() -> None:
    """That of an axis over the same range."""
    assert words.flops_range(40.6e9, 2.59e12) == "40.6 to 2,590 GFLOPs"
    assert words.flops_range(40.6e9, 40.6e12) == "0.0406 to 40.6 TFLOPs"
    assert words.common_flop_unit([40.6e9, 1e11, 2.59e12]) == (1e9, "GFLOP")
