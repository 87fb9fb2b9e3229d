"""The text of races: settings, how often they were run, and what an answer rests on."""

from __future__ import annotations

from collections.abc import Sequence

from bench.analysis import races
from bench.analysis.finding import Finding
from bench.core.formatting import percent, plural, significant
from bench.core.record import PeerSettings

WORDS = {
    "layout": {
        "contiguous": "NCHW",
        "channels_last": "channels last",
        "channels_last images": "images channels last",
    },
    "dtype": {},
    "attention": {"fused": "fused attention", "plain": "plain attention", "own": ""},
    "compiled": {"off": "eager", "blocks": "compiled blocks", "whole": "compiled", "own": ""},
    "optimizer": {"default": "", "foreach": "foreach AdamW", "fused": "fused AdamW", "own": ""},
}


def settings(chosen: Sequence[PeerSettings]) -> str:
    """Of one contender: "NCHW, bfloat16, plain attention, eager, fused AdamW"; of several runs each that differs."""
    texts = [
        ", ".join(filter(None, (words.get(getattr(each, name), getattr(each, name)) for name, words in WORDS.items())))
        for each in chosen
    ]
    return " or ".join(dict.fromkeys(texts))


def repetitions(ratio: races.Ratio) -> str:
    """ "12 rounds in 4 starts of a race that was run once"."""
    often = {1: "once", 2: "twice"}.get(ratio.races, f"{ratio.races} times")
    return f"{plural(ratio.rounds, 'round')} in {plural(ratio.starts, 'start')} of a race that was run {often}"


def answer(f: Finding) -> list[str]:
    """Speed, and speed relative to the base and to the fastest other library."""
    race = [item for item in f.evidence if isinstance(item, races.Contender)]
    own, peer = next((c for c in race if c.name == races.OWN), None), races.fastest_peer(race)
    if own is None or peer is None or peer.own_over is None:
        return []
    base = next((c.own_over for c in race if c.name == races.BASE and c.own_over), None)
    over = f"{significant(base.value)} × {races.BASE}; " if base else ""
    others = [
        f"{c.name.partition(', ')[2]}: {significant(c.over_base.value)} × {races.BASE}"
        for c in race
        if c.own and c is not own and c.over_base
    ]
    share = f"; {percent(own.share_of_peak)} % of the measured matmul peak" if own.share_of_peak else ""
    speed = f"{significant(own.images_per_second or 0.0)} images/s in {own.dtype}, batch {own.batch}"
    chosen = [f"{c.name}: {text}" for c in (own, peer) if (text := settings(c.settings))]
    return [
        f"Relative to {peer.name}. {speed}; {over}{repetitions(peer.own_over)}{share}.",
        *([f"Settings, the fastest of short trials: {'; '.join(chosen)}."] if chosen else []),
        *(f"With {text}." for text in others),
    ]
