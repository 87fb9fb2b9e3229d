"""Claims and fitted laws on the page: the paper's claims beside the verdicts, and every fit's card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from bench.report import fits

HERE, TABLE_6 = "In these records", "In the paper's own Table 6"
CLASSES = {"yes": "yes", "no": "no", "cannot tell": "unsure", None: "unsure"}


def claims_section(claims: Sequence[Any], *, published: bool = False) -> str:
    """The paper's claims: in these records, and in the paper's own table (the same, where that is `published`)."""
    if not claims:
        return ""
    rows = "".join(
        f'<tr><td class="wrap">{escape(c.claim)} <span class="small">({escape(c.where)})</span></td>'
        f"{'' if published else _verdict(HERE, c.verdict, c.sentence)}"
        f"{_verdict(TABLE_6, c.paper, c.paper_sentence)}</tr>"
        for c in claims
    )
    here = "" if published else f'<th scope="col">{HERE}</th>'
    return (
        '<h3>The paper\'s claims</h3><div class="scroll"><table class="claims"><thead><tr><th scope="col">Claim</th>'
        f'{here}<th scope="col">{TABLE_6}</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _verdict(where: str, verdict: str | None, sentence: str) -> str:
    word = f'<span class="verdict {CLASSES[verdict]}">{escape(verdict)}</span><br>' if verdict else ""
    return f'<td class="wrap" data-label="{escape(where)}">{word}{escape(sentence)}</td>'


def cards_section(cards: Sequence[Mapping[str, Any]]) -> str:
    """A fold per fitted law: what was fitted, how, on what, and what makes it worth less than it looks."""
    return "".join(f"<details><summary>{escape(fits.heading(card))}</summary>{_card(card)}</details>" for card in cards)


def _card(card: Mapping[str, Any]) -> str:
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in fits.facts(card) if text)
    warnings = "".join(f'<p class="warning">{escape(text)}</p>' for text in card["warnings"])
    return f'<dl class="facts">{facts}</dl>{warnings}'
