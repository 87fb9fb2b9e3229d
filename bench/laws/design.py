"""The next runs that narrow an answer most per money: classical optimal design on laws that were fitted already.

An answer is a number that laws give: an exponent, an optimum, a crossing, y at a target. Linearised at a law, its
variance is c' M^-1 c, where c is its gradient by the law's parameters and M the information of the runs there are and
of those that are planned (c-optimality: Atkinson, Donev and Tobias 2007). A law that is known by its refits alone is no
single place to linearise at: the mean of the log variance over refits of every form is minimised (pseudo-Bayesian
design: Chaloner and Verdinelli 1995), so that runs serve all forms that the points leave possible. Runs are chosen by
greed and exchange under a limit of money; what the choice is worth is then measured by simulated studies that are
refitted, each by every form.

Runs at one place share `SHARED` of their variance, as tuning and the form's misfit are those of a place: a second run
there says less than a run elsewhere. Beyond the data an extrapolation's own error, in proportion to the distance that
the planned runs leave, is added to the variance.

Arrays: W worlds (laws of every group), C candidates, P parameters of all groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from bench.laws.averaging import TEMPER, Averaged
from bench.laws.bootstrap import LAW_LEVEL, variance_components
from bench.laws.fit import MAX_REFIT_STEPS, REFIT_FTOL, FormFit, descend, loss_sum
from bench.laws.forms import Form

SHARED = 1 / 3  # Runs at one place are assumed to share this part of their variance.
PRIOR_SD = 3.0  # Parameters, which are logarithms or exponents, lie so near a refit: this keeps M regular.
WORLDS = 24  # A design is judged on so many refits.
MOST_RUNS = 24  # A design names no more: nobody plans further ahead.
LEAST_GAIN = 0.01  # A run has to take away this share of the variance.
STEP = 1e-4  # Gradients are differences over this step of a parameter to either side.
GRID = 400  # An x is looked for at so many places.
FAR = 1e3  # It is looked for up to so many times the largest x of the data.
PASSES = 3  # Exchanges go over all planned runs so often at most.
GREEDS = (1.0, 0.5, 0.0)  # A gain is divided by its price to each of these powers, and each begins a design.
STUDIES = 200  # So many studies are simulated from each form.
LEAST_WEIGHT = 0.05  # Studies are simulated from forms of at least this weight.


@dataclass(frozen=True, kw_only=True, eq=False)
class DrawnLaw:
    """A form with its parameters. `theta` and `scale` are as in `FormFit`."""

    form: Form
    scale: np.ndarray
    theta: np.ndarray

    def log_predict(self, x: np.ndarray) -> np.ndarray:
        """log y at x (inputs, n)."""
        with np.errstate(all="ignore"):
            return self.form.log_predict(self.theta, np.atleast_2d(x) / self.scale[:, None])

    def natural(self) -> dict[str, float]:
        """Parameters in the user's units."""
        with np.errstate(all="ignore"):
            return dict(self.form.natural(self.theta, self.scale))


@dataclass(frozen=True, kw_only=True, eq=False)
class NarrowedAnswer:
    """A number that laws give.

    Attributes:
        text: what it is called.
        value: the laws of all groups -> the number, its logarithm if `log`; NaN where they have none.
        log: whether intervals are of its logarithm.
        target: the place that it extrapolates to, (inputs,); None: it does not.
        extrapolation: standard deviation of the answer per unit of log distance beyond the data.
        is_x: it is the x of a y, and no y.
    """

    text: str
    value: Callable[[Sequence[DrawnLaw]], float]
    log: bool = False
    target: np.ndarray | None = None
    extrapolation: float = 0.0
    is_x: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class KnownGroup:
    """What is known of one group: fits of every form that its points allow, their weights, and refits."""

    name: str
    fits: tuple[FormFit, ...]
    weights: np.ndarray
    refits: Averaged

    @property
    def places(self) -> np.ndarray:
        """x of its runs, (inputs, n)."""
        return self.fits[0].points.x

    @property
    def variance(self) -> float:
        """Of log y of one new run."""
        points = self.fits[0].points
        if points.scatter is not None:
            return points.scatter**2
        components = [variance_components(made) for made in self.fits]
        return float(np.average([c.within + c.between for c in components], weights=self.weights))

    @property
    def freedom(self) -> float:
        """Degrees of freedom of that."""
        return self.refits.freedom


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidates:
    """Runs that may be next: x (inputs, C), the group of each, and its price."""

    x: np.ndarray
    group: np.ndarray
    price: np.ndarray

    def __len__(self) -> int:
        return len(self.price)


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """An answer's linearisations, W worlds at once.

    Attributes:
        before_WPP: information of the runs there are.
        of_run_WCP: derivatives of log y of every candidate, over the standard deviation of a run.
        gradient_WP: of the answer.
        reach_KC: logarithms of the inputs of every candidate, and of their product. reach_K: the largest of the runs
            there are. asked_K: of the target; None: the answer has none.
        extrapolation: see `NarrowedAnswer`.
        price_C: of every candidate.
    """

    before_WPP: np.ndarray
    of_run_WCP: np.ndarray
    gradient_WP: np.ndarray
    reach_KC: np.ndarray
    reach_K: np.ndarray
    asked_K: np.ndarray | None
    extrapolation: float
    price_C: np.ndarray

    def _beyond(self, reach_K: np.ndarray) -> np.ndarray:
        """Log distance that is left to the target, (...,); reach (K, ...)."""
        if self.asked_K is None:
            return np.zeros(reach_K.shape[1:])
        asked = self.asked_K.reshape(-1, *(1,) * (reach_K.ndim - 1))
        return np.maximum((asked - reach_K).max(axis=0), 0.0)

    def beyond(self, count_C: np.ndarray) -> float:
        """Log distance that a design leaves to the target."""
        chosen = self.reach_KC[:, count_C > 0]
        return float(self._beyond(np.maximum(self.reach_K, chosen.max(axis=1, initial=-np.inf))))

    def variances(self, count_C: np.ndarray) -> np.ndarray:
        """Of the answer with a design, (W,)."""
        inverse_WPP = np.linalg.inv(self._information(count_C))
        linear_W = np.einsum("wp,wpq,wq->w", self.gradient_WP, inverse_WPP, self.gradient_WP)
        return linear_W + (self.extrapolation * self.beyond(count_C)) ** 2

    def score(self, count_C: np.ndarray) -> float:
        """Mean log variance: what a design is to make small."""
        return float(np.log(self.variances(count_C)).mean())

    def with_one_more(self, count_C: np.ndarray) -> np.ndarray:
        """The score with one more run of every candidate, (C,), by Sherman and Morrison's formula."""
        inverse_WPP = np.linalg.inv(self._information(count_C))
        solved_WP = np.einsum("wpq,wq->wp", inverse_WPP, self.gradient_WP)
        linear_W = (solved_WP * self.gradient_WP).sum(axis=1)
        across_WC = np.einsum("wcp,wp->wc", self.of_run_WCP, solved_WP)
        own_WC = np.einsum("wcp,wpq,wcq->wc", self.of_run_WCP, inverse_WPP, self.of_run_WCP, optimize=True)
        more_C = informative(count_C + 1) - informative(count_C)
        left_WC = linear_W[:, None] - more_C * across_WC**2 / (1 + more_C * own_WC)
        reach_K = np.maximum(self.reach_K, self.reach_KC[:, count_C > 0].max(axis=1, initial=-np.inf))
        beyond_C = self._beyond(np.maximum(reach_K[:, None], self.reach_KC))
        return np.log(np.maximum(left_WC, 1e-300) + (self.extrapolation * beyond_C) ** 2).mean(axis=0)

    def _information(self, count_C: np.ndarray) -> np.ndarray:
        chosen = np.flatnonzero(count_C)
        rows = self.of_run_WCP[:, chosen]
        return self.before_WPP + np.einsum("wcp,c,wcq->wpq", rows, informative(count_C[chosen]), rows)


def informative(count: np.ndarray) -> np.ndarray:
    """How much so many runs at one place say, in single runs."""
    return count / ((1 - SHARED) + count * SHARED)


def problem(answer: NarrowedAnswer, groups: Sequence[KnownGroup], candidates: Candidates, *, seed: int = 0) -> Problem:
    """Linearise an answer at refits of all groups. Worlds without an answer are left out.

    Raises:
        ValueError: no world has one.
    """
    rng = np.random.default_rng(seed)
    before, of_run, gradients = [], [], []
    width = sum(max(made.form.size for made in group.fits) for group in groups)
    worlds = [drawn(group, WORLDS, rng) for group in groups]
    for laws in zip(*worlds, strict=True):
        gradient = _gradient(answer, laws)
        if not np.isfinite(gradient).all() or not gradient.any():
            continue
        information, rows, at = np.eye(width), np.zeros((len(candidates), width)), 0
        for number, (group, law) in enumerate(zip(groups, laws, strict=True)):
            here = slice(at, at + law.form.size)
            mine = candidates.group == number
            information[here, here] = _information(group, law) + np.eye(law.form.size) / PRIOR_SD**2
            rows[mine, here] = _derivatives(law, candidates.x[:, mine]) / np.sqrt(group.variance)
            at += law.form.size
        before.append(information)
        of_run.append(rows)
        gradients.append(np.pad(gradient, (0, width - len(gradient))))
    if not before:
        raise ValueError("no law has this answer")
    seen = np.concatenate([group.places for group in groups], axis=1)
    return Problem(
        before_WPP=np.stack(before),
        of_run_WCP=np.stack(of_run),
        gradient_WP=np.stack(gradients),
        reach_KC=_reach(candidates.x),
        reach_K=_reach(seen).max(axis=1),
        asked_K=None if answer.target is None else _reach(answer.target[:, None])[:, 0],
        extrapolation=answer.extrapolation,
        price_C=candidates.price,
    )


def _reach(x: np.ndarray) -> np.ndarray:
    """Logarithms of the first two inputs, and of their product, (K, n)."""
    log_x = np.log(np.atleast_2d(x)[:2])
    return log_x if len(log_x) == 1 else np.vstack([log_x, log_x.sum(axis=0)])


def drawn(group: KnownGroup, number: int, rng: np.random.Generator) -> list[DrawnLaw]:
    """Laws from refits of all forms, each as often as its weight."""
    every = [
        DrawnLaw(form=part.fit.form, scale=part.fit.scale, theta=theta)
        for part in group.refits.parts
        for theta in part.thetas
    ]
    return [every[i] for i in rng.choice(len(every), number, replace=len(every) < number)]


def _derivatives(law: DrawnLaw, x: np.ndarray) -> np.ndarray:
    """Of log y by the parameters, (n, parameters)."""
    with np.errstate(all="ignore"):
        found = law.form.jacobian(law.theta, x / law.scale[:, None])
    return np.clip(np.nan_to_num(np.broadcast_to(found, (x.shape[1], law.form.size))), -1e6, 1e6)


def _information(group: KnownGroup, law: DrawnLaw) -> np.ndarray:
    """Of the runs there are, about the parameters of a law: runs of one trunk share its noise."""
    made = group.fits[0]
    points = made.points
    components = variance_components(made)
    within = max(components.within, 1e-12) if components.within or components.between else group.variance
    rows = _derivatives(law, points.x)
    total = np.zeros((law.form.size, law.form.size))
    for cluster in np.unique(points.cluster):
        mine = rows[points.cluster == cluster]
        together = components.between / (within + len(mine) * components.between)
        total += (mine.T @ mine - together * np.outer(mine.sum(axis=0), mine.sum(axis=0))) / within
    return total


def _gradient(answer: NarrowedAnswer, laws: Sequence[DrawnLaw]) -> np.ndarray:
    """Derivatives of the answer by the parameters of all laws in turn."""
    slopes = []
    for number, law in enumerate(laws):
        for k in range(law.form.size):
            ends = []
            for side in (-1, 1):
                theta = law.theta.copy()
                theta[k] += side * STEP
                moved = [replace(law, theta=theta) if i == number else other for i, other in enumerate(laws)]
                ends.append(answer.value(moved))
            slopes.append((ends[1] - ends[0]) / (2 * STEP))
    return np.array(slopes)


# -- the choice --------------------------------------------------------------------------------------------------------


def choose(of: Problem, money: float, *, known: Sequence[np.ndarray] = ()) -> np.ndarray:
    """How often to run every candidate, (C,): greedy designs, and `known` cheaper ones, improved by exchanges, the best
    of them."""
    starts = [_filled(of, np.zeros(len(of.price_C), dtype=int), money, greed) for greed in GREEDS]
    return min((_exchanged(of, start, money) for start in (*starts, *known)), key=of.score)


def _filled(of: Problem, count_C: np.ndarray, money: float, greed: float) -> np.ndarray:
    """A design with runs added while there is money, each with the largest gain over its price to the power `greed`."""
    count_C, score = count_C.copy(), of.score(count_C)
    while count_C.sum() < MOST_RUNS:
        left = money - float(count_C @ of.price_C)
        after_C = np.where(of.price_C <= left * (1 + 1e-9), of.with_one_more(count_C), np.inf)
        gain_C = (score - after_C) / of.price_C**greed
        best = int(np.argmax(gain_C))
        if not np.isfinite(after_C[best]) or score - after_C[best] < LEAST_GAIN:
            break
        count_C[best] += 1
        score = float(after_C[best])
    return count_C


def _exchanged(of: Problem, count_C: np.ndarray, money: float) -> np.ndarray:
    """A design in which no run, and no place, can be given up for better ones."""
    score = of.score(count_C)
    for _ in range(PASSES):
        before = score
        for place in np.flatnonzero(count_C):
            for fewer in sorted({1, int(count_C[place])}):
                if not count_C[place]:
                    continue
                rest = count_C.copy()
                rest[place] -= min(fewer, rest[place])
                for greed in GREEDS:
                    tried = _filled(of, rest, money, greed)
                    if (found := of.score(tried)) < score - 1e-9:
                        count_C, score = tried, found
        if score > before - 1e-6:
            break
    return count_C


# -- what it is worth --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Width:
    """Half of the expected interval of an answer, of its logarithm where intervals are of that; `studies`: how many
    were simulated."""

    half: float
    studies: int


def expected_width(
    answer: NarrowedAnswer,
    groups: Sequence[KnownGroup],
    x_by_group: Sequence[np.ndarray],
    *,
    seed: int = 0,
    level: float = LAW_LEVEL,
) -> Width:
    """Simulate studies of the runs there are and of some more, (inputs, n) for each group, from every form that the
    points leave possible, and refit each by all forms: half of the interval that holds `level` of the answers.

    Quantiles are stretched to Student's t: noise is estimated from the runs.
    """
    rng = np.random.default_rng(seed)
    truths = [[i for i in range(len(g.fits)) if g.weights[i] >= min(LEAST_WEIGHT, g.weights.max())] for g in groups]
    number = max(len(of) for of in truths)
    halves, weights, studies = [], [], 0
    more = sum(x.shape[1] for x in x_by_group)
    freedom = max(1.0, min(group.freedom for group in groups))
    for step in range(number):
        chosen = [of[step % len(of)] for of in truths]
        laws = [_refitted(group, truth, x, rng) for group, truth, x in zip(groups, chosen, x_by_group, strict=True)]
        values = np.array([answer.value(each) for each in zip(*laws, strict=True)])
        values = values[np.isfinite(values)]
        if len(values) < STUDIES / 4:
            continue
        low, high = np.quantile(values, [0.5 - level / 2, 0.5 + level / 2])
        halves.append((high - low) / 2)
        weights.append(np.prod([g.weights[i] for g, i in zip(groups, chosen, strict=True)]))
        studies += len(values)
    if not halves:
        return Width(half=float("nan"), studies=0)
    share = 0.5 + level / 2
    stretch = float(special.stdtrit(freedom + more, share) / special.ndtri(share))
    return Width(half=float(np.average(halves, weights=weights)) * stretch, studies=studies)


def _refitted(group: KnownGroup, truth: int, x: np.ndarray, rng: np.random.Generator) -> list[DrawnLaw]:
    """Laws of studies that are simulated from one of a group's fits: for each study the law of one form, drawn by its
    weight in that study."""
    true = group.fits[truth]
    points = true.points
    every = np.concatenate([points.x, x], axis=1)
    _, place = np.unique(x, axis=1, return_inverse=True)
    _, cluster = np.unique(points.cluster, return_inverse=True)
    components = variance_components(true)
    old = np.sqrt(components.within) * rng.normal(size=(STUDIES, len(points)))
    old += np.sqrt(components.between) * rng.normal(size=(STUDIES, int(cluster.max()) + 1))[:, cluster]
    spread = np.sqrt(group.variance)
    new = np.sqrt(1 - SHARED) * rng.normal(size=(STUDIES, x.shape[1]))
    if x.shape[1]:
        new += np.sqrt(SHARED) * rng.normal(size=(STUDIES, int(place.max()) + 1))[:, place.ravel()]
    log_y = true.log_predict(every) + np.concatenate([old, spread * new], axis=1)
    weight = np.ones((1, every.shape[1]))
    ends, criteria = [], []
    for made in group.fits:
        inside = every / made.scale[:, None]
        how = {"loss": made.loss, "delta": made.delta, "weight": weight}
        start = np.tile(made.theta, (STUDIES, 1))
        theta = descend(made.form, inside, log_y, start, ftol=REFIT_FTOL, steps=MAX_REFIT_STEPS, **how)  # type: ignore[arg-type]
        with np.errstate(all="ignore"):
            missed = made.form.log_predict(theta.T[:, :, None], inside) - log_y
        squares = 2 * loss_sum(np.nan_to_num(missed, nan=1e3), loss="squares", delta=1.0)
        ends.append([DrawnLaw(form=made.form, scale=made.scale, theta=one) for one in theta])
        criteria.append(every.shape[1] * np.log(np.maximum(squares, 1e-300)) + 2 * (made.form.size + 1))
    weights_SF = np.exp(-TEMPER / 2 * (np.array(criteria) - np.min(criteria, axis=0))).T
    weights_SF /= weights_SF.sum(axis=1, keepdims=True)
    drawn = (rng.random((STUDIES, 1)) > np.cumsum(weights_SF, axis=1)[:, :-1]).sum(axis=1)
    return [ends[form][study] for study, form in enumerate(drawn)]


# -- answers -----------------------------------------------------------------------------------------------------------


def slope_at(law: DrawnLaw, x: float) -> float:
    """-d log y / d log x of a law of one input."""
    ends = law.log_predict(np.array([[x / 1.01, x * 1.01]]))
    return float((ends[0] - ends[1]) / np.log(1.01**2))


def log_x_of(law: DrawnLaw, y: float, first: float) -> float:
    """log of the x at which a falling law of one input reaches y; NaN where it does not."""
    log_x = np.linspace(np.log(first), np.log(first * FAR**2), GRID)
    gap = np.minimum.accumulate(law.log_predict(np.exp(log_x)[None])) - np.log(y)
    return _first_zero(log_x, gap) if np.isfinite(gap).all() and gap[0] > 0 else float("nan")


def log_crossing(one: DrawnLaw, other: DrawnLaw, low: float, high: float) -> float:
    """log x where two laws of one input cross, the first time between low and high; NaN where they do not."""
    log_x = np.linspace(np.log(low), np.log(high), GRID)
    gap = one.log_predict(np.exp(log_x)[None]) - other.log_predict(np.exp(log_x)[None])
    return _first_zero(log_x, gap * np.sign(gap[0])) if np.isfinite(gap).all() else float("nan")


def _first_zero(log_x: np.ndarray, gap: np.ndarray) -> float:
    below = np.flatnonzero(gap <= 0)
    if not len(below) or not below[0]:
        return float("nan")
    i = int(below[0])
    return float(log_x[i - 1] + (log_x[i] - log_x[i - 1]) * gap[i - 1] / (gap[i - 1] - gap[i]))


def optimum(law: DrawnLaw, compute: float, *, flop_per: float) -> tuple[float, float]:
    """(N, D) of least loss where flop_per N D = compute, of the law L = E + A N^-alpha + B D^-beta."""
    p = law.natural()
    product = compute / flop_per
    with np.errstate(all="ignore"):
        log_n = (np.log(p["alpha"] * p["A"] / (p["beta"] * p["B"])) + p["beta"] * np.log(product)) / (
            p["alpha"] + p["beta"]
        )
        return float(np.exp(log_n)), float(product / np.exp(log_n))
