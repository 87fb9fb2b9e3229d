"""Claims and fitted laws on the page: the paper's claims beside the verdicts, and every fit's card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from bench.core.formatting import join, significant

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
    return "".join(f"<details><summary>{escape(_title(card))}</summary>{_card(card)}</details>" for card in cards)


def _title(card: Mapping[str, Any]) -> str:
    against = "compute" if card["axis"] == "compute" else "distinct images"
    return f"{card['family']}: error against {against}, {card['card']['formula']}"


def _card(card: Mapping[str, Any]) -> str:
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts_of(card) if text)
    warnings = "".join(f'<p class="warning">{escape(text)}</p>' for text in card["warnings"])
    return f'<dl class="facts">{facts}</dl>{warnings}'


def facts_of(card: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(name, text) of everything on a card."""
    fit = card["card"]
    parameters = [
        f"{name} = {significant(p['value'])} [{significant(p['within'][0])}, {significant(p['within'][1])}]"
        for name, p in card["parameters"].items()
    ]  # fmt: skip
    tried = [f"{form['form']} {_rms(form['extrapolation_rms_log'])}" for form in card["forms_tried"]]
    dropped = [str(item) for item in fit["dropped"]]
    return [
        ("Form", f"{fit['form']}: {fit['formula']}"),
        (f"Parameters, {card['level']:.0%}", "; ".join(parameters)),
        ("Intervals", f"{card['resampling']}; total interval over {join(card['total_over'])}"),
        ("Loss", fit["loss"]),
        ("Points", f"{fit['points']} runs in {fit['clusters']} trunks; {card['points_tried']} points tried"),
        ("Dropped", "; ".join(dropped) or "none"),
        ("Range of x", f"{_e(fit['x_range'][0])} to {_e(fit['x_range'][1])}"),
        ("Optimiser", f"{fit['starts']} starts, {fit['starts_that_agree']} agree; objective "
                      f"{_e(fit['objective_at_start'])} → {_e(fit['objective'])}; largest gradient "
                      f"{_e(fit['largest_gradient'])}"),
        ("Residuals", f"{significant(fit['rms_log_residual'])} (root mean square, log)"),
        ("Forms by extrapolation error", "; ".join(tried)),
        ("Software", ", ".join(f"{name} {version}" for name, version in sorted(fit["software"].items()))),
    ]  # fmt: skip


def _rms(value: float | None) -> str:
    return "(not tried: too few points)" if value is None else significant(value)


def _e(value: float) -> str:
    return f"{value:.3g}"
