"""The forms of `bench.fit` by the names under which papers have them."""

from __future__ import annotations

FORM_NAMES: dict[str, tuple[str, str]] = {
    "power": ("power law", "Hestness et al. 2017, arXiv 1712.00409; Kaplan et al. 2020, 2001.08361"),
    "power-floor": (
        "power law + floor",
        "Henighan et al. 2020, 2010.14701; L(N) = E + A/N^α in Hoffmann et al. 2022",
    ),
    "zhai": ("shifted power law + floor", "Scaling Vision Transformers: Zhai et al. 2021, 2106.04560"),
    "m3": ("saturating power law (M3)", "Alabdulmohsin et al. 2022, 2209.06640"),
    "m4": ("power law from chance to a floor (M4)", "Alabdulmohsin et al. 2022, 2209.06640"),
    "bnsl1": ("broken power law (BNSL, one break)", "Caballero et al. 2022, 2210.14891"),
    "chinchilla": ("Chinchilla law", "approach 3 of Hoffmann et al. 2022, 2203.15556"),
    "repeated": ("Chinchilla law with repeated data", "Muennighoff et al. 2023, 2305.16264"),
    "isoflop": ("isoFLOP profiles", "approach 2 of Hoffmann et al. 2022, 2203.15556"),
}
"""Forms that --form takes: name, source (arXiv)."""


def form_name(form: str) -> str:
    return FORM_NAMES[form][0]
