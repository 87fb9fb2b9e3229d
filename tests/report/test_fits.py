"""Every fitted law as data: both kinds of interval, and what the search did."""

from __future__ import annotations

import numpy as np

from bench.analysis import published
from bench.report import fits


def test_cards_hold_both_intervals_and_the_search() -> None:
    found = fits.cards(published.evidence())
    assert [card["family"] for card in found] == ["ViT", "Hybrid", "ResNet"]
    for card in found:
        within, total = (np.array(card["curve"][key], dtype=float) for key in ("within", "total"))
        known = np.isfinite(total).all(axis=1)  # beyond the data only as far as the law has a record
        for band in (within, total):
            assert (band[known, 0] < band[known, 1]).all() and np.isnan(band[~known]).all()
        assert known[~np.array(card["curve"]["beyond"], dtype=bool)].all()
        assert {"starts", "objective", "objective_at_start", "software", "dropped"} <= card["card"].keys()
        assert card["selection_bias"] >= 0 and any(card["curve"]["beyond"])
