"""Chooses the next runs that narrow the interval of an answer most for a budget, by optimal design on fitted laws.

An answer is a number that laws give: an exponent, an optimum, a crossing, y at a target. Linearised at a law, its
variance is c' M^-1 c, where c is the answer's gradient by the law's parameters and M the Fisher information of the
existing and the planned runs (c-optimality: Atkinson, Donev and Tobias 2007). Because the law is uncertain, the mean of
the log variance over bootstrap refits of every form is minimised (pseudo-Bayesian design: Chaloner and Verdinelli
1995), so that the runs serve all forms that the points leave possible. Runs are chosen by greedy addition and exchange
under a limit of cost. The interval to expect is then measured on simulated studies, to each of which every form is
fitted.

Runs at one place (one x and group) share `SHARED` of their variance, because tuning and the misfit of the form are the
same there: a second run there says less than a run elsewhere. Beyond the data, an extrapolation error is added to the
variance, in proportion to the distance from the farthest run to the target.

Arrays: W worlds (a world is one possible law for each group), C candidates (runs that may be chosen), P parameters of
the laws of all groups.
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
PRIOR_SD = 3.0  # Prior standard deviation of parameters (logarithms or exponents) about a refit; keeps M invertible.
WORLDS = 24  # A design is judged on this many refits.
MOST_RUNS = 24  # A design has at most this many runs: nobody plans further ahead.
LEAST_GAIN = 0.01  # A further run has to reduce the mean log variance by this much.
STEP = 1e-4  # Gradients are central differences with this step of a parameter.
GRID = 400  # An x is searched on this many grid points,
FAR = 1e3  # up to FAR² times the smallest x of the data.
PASSES = 3  # Exchanges go over all planned runs at most this often.
GREEDS = (1.0, 0.5, 0.0)  # One greedy design is made for each power of the price by which a gain is divided.
STUDIES = 200  # This many studies are simulated from each form.
LEAST_WEIGHT = 0.05  # Studies are simulated from forms of at least this weight.


@dataclass(frozen=True, kw_only=True, eq=False)
class DrawnLaw:
    """A form with the parameters of one bootstrap refit. `theta` (internal parameters) and `scale` (by which x is
    divided) are as in `FormFit`."""

    form: Form
    scale: np.ndarray
    theta: np.ndarray

    def log_predict(self, x: np.ndarray) -> np.ndarray:
        """Return log y at x (inputs, n)."""
        with np.errstate(all="ignore"):
            return self.form.log_predict(self.theta, np.atleast_2d(x) / self.scale[:, None])

    def natural(self) -> dict[str, float]:
        """Return the parameters by name, in the user's units."""
        with np.errstate(all="ignore"):
            return dict(self.form.natural(self.theta, self.scale))


@dataclass(frozen=True, kw_only=True, eq=False)
class NarrowedAnswer:
    """A number computed from laws, whose interval the next runs are to narrow.

    Attributes:
        text: the answer's name, as printed.
        value: the laws of all groups -> the number, or its logarithm if `log`; NaN if the laws do not give it.
        log: whether `value` and its interval are logarithms.
        target: the x that the answer extrapolates to, (inputs,); None if it does not extrapolate.
        extrapolation: standard deviation of the answer per unit of log distance from the largest run to `target`.
        is_x: whether the answer is the x of a given y, rather than a y.
    """

    text: str
    value: Callable[[Sequence[DrawnLaw]], float]
    log: bool = False
    target: np.ndarray | None = None
    extrapolation: float = 0.0
    is_x: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class KnownGroup:
    """A group of runs whose laws have been fitted.

    Attributes:
        name: the group's name.
        fits: a fit of every form that the points allow.
        weights: the Akaike weight of each fit, (fits,).
        refits: bootstrap refits of all forms.
    """

    name: str
    fits: tuple[FormFit, ...]
    weights: np.ndarray
    refits: Averaged

    @property
    def places(self) -> np.ndarray:
        """x of the group's runs, (inputs, n)."""
        return self.fits[0].points.x

    @property
    def variance(self) -> float:
        """Variance of log y of one new run about the law."""
        points = self.fits[0].points
        if points.scatter is not None:
            return points.scatter**2
        components = [variance_components(made) for made in self.fits]
        return float(np.average([c.within + c.between for c in components], weights=self.weights))

    @property
    def freedom(self) -> float:
        """Degrees of freedom of `variance`."""
        return self.refits.freedom


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidates:
    """Runs that may be chosen: x (inputs, C), the index of each run's group (C,), and each run's price (C,)."""

    x: np.ndarray
    group: np.ndarray
    price: np.ndarray

    def __len__(self) -> int:
        return len(self.price)


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """A design problem: an answer, linearised at W worlds (each one possible law for every group). A design is
    `count_C`, how often each of the C candidates is run.

    Attributes:
        before_WPP: Fisher information of the existing runs.
        of_run_WCP: derivatives of log y of every candidate by the parameters, over the standard deviation of a run.
        gradient_WP: derivatives of the answer by the parameters.
        reach_KC: logarithms of the inputs of every candidate and, for two inputs, of their product.
        reach_K: the largest of each of these K logarithms over the existing runs.
        asked_K: the same logarithms for the answer's target; None if it has none.
        extrapolation: standard deviation per unit of log distance beyond the farthest run, as in `NarrowedAnswer`.
        price_C: price of every candidate.
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
        """Return the log distance from `reach_K` (K, ...) to the target, (...,); 0 without a target."""
        if self.asked_K is None:
            return np.zeros(reach_K.shape[1:])
        asked = self.asked_K.reshape(-1, *(1,) * (reach_K.ndim - 1))
        return np.maximum((asked - reach_K).max(axis=0), 0.0)

    def beyond(self, count_C: np.ndarray) -> float:
        """Return the log distance from the farthest run, existing or of the design, to the target; 0 without one."""
        chosen = self.reach_KC[:, count_C > 0]
        return float(self._beyond(np.maximum(self.reach_K, chosen.max(axis=1, initial=-np.inf))))

    def variances(self, count_C: np.ndarray) -> np.ndarray:
        """Return the variance of the answer with a design, in each world, (W,)."""
        inverse_WPP = np.linalg.inv(self._information(count_C))
        linear_W = np.einsum("wp,wpq,wq->w", self.gradient_WP, inverse_WPP, self.gradient_WP)
        return linear_W + (self.extrapolation * self.beyond(count_C)) ** 2

    def score(self, count_C: np.ndarray) -> float:
        """Return the mean over worlds of the answer's log variance with a design. A good design has a small one."""
        return float(np.log(self.variances(count_C)).mean())

    def with_one_more(self, count_C: np.ndarray) -> np.ndarray:
        """Return the score of a design with one more run of each candidate in turn, (C,), by the Sherman-Morrison
        formula."""
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
    """Return the Fisher information of `count` runs at one place (x and group), in units of that of a single run. It is
    less than `count`, because such runs share the part `SHARED` of their variance."""
    return count / ((1 - SHARED) + count * SHARED)


def problem(answer: NarrowedAnswer, groups: Sequence[KnownGroup], candidates: Candidates, *, seed: int = 0) -> Problem:
    """Linearise an answer at random worlds, each of which takes one bootstrap refit of every group. Worlds whose laws
    do not give the answer are left out.

    Raises:
        ValueError: no world gives the answer.
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
    """Return the logarithms of the first two inputs of x (inputs, n) and, if there are two, of their product: (K, n)
    with K = 1 or 3."""
    log_x = np.log(np.atleast_2d(x)[:2])
    return log_x if len(log_x) == 1 else np.vstack([log_x, log_x.sum(axis=0)])


def drawn(group: KnownGroup, number: int, rng: np.random.Generator) -> list[DrawnLaw]:
    """Return `number` laws, drawn at random from the group's refits of all forms. A form is drawn in proportion to its
    weight, because it has refits in that proportion."""
    every = [
        DrawnLaw(form=part.fit.form, scale=part.fit.scale, theta=theta)
        for part in group.refits.parts
        for theta in part.thetas
    ]
    return [every[i] for i in rng.choice(len(every), number, replace=len(every) < number)]


def _derivatives(law: DrawnLaw, x: np.ndarray) -> np.ndarray:
    """Return the derivatives of log y at x (inputs, n) by the internal parameters of a law, (n, parameters)."""
    with np.errstate(all="ignore"):
        found = law.form.jacobian(law.theta, x / law.scale[:, None])
    return np.clip(np.nan_to_num(np.broadcast_to(found, (x.shape[1], law.form.size))), -1e6, 1e6)


def _information(group: KnownGroup, law: DrawnLaw) -> np.ndarray:
    """Return the Fisher information of the existing runs about the parameters of a law, (parameters, parameters). Runs
    of one trunk (training run) share its noise."""
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
    """Return the derivatives of the answer by the parameters of all laws, one law after the other, (P,)."""
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
    """Return the best design found for at most `money`: how often to run every candidate, (C,). The best one gives the
    answer the least mean log variance. Greedy designs, and the designs in `known` (which cost at most `money`), are
    improved by exchanges."""
    starts = [_filled(of, np.zeros(len(of.price_C), dtype=int), money, greed) for greed in GREEDS]
    return min((_exchanged(of, start, money) for start in (*starts, *known)), key=of.score)


def _filled(of: Problem, count_C: np.ndarray, money: float, greed: float) -> np.ndarray:
    """Return a design with further runs, added to `count_C` one by one while the money lasts: each time the run with
    the largest reduction of the score, divided by price^greed."""
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
    """Return the design `count_C` improved by exchanges: one run, or all runs of one candidate, are given up, and
    better ones are added, so that the design still costs at most `money`."""
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
    """The expected width of an answer's interval.

    Attributes:
        half: half-width of the interval, which is of the answer's logarithm if `NarrowedAnswer.log`; NaN if unknown.
        studies: number of simulated studies that it comes from.
    """

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
    """Simulate studies with the existing runs and some further ones, fit all forms to each study, and return the
    half-width of the interval that holds a fraction `level` of the answers.

    Studies are simulated from every form that the points leave possible. The half-width is stretched from quantiles of
    a normal distribution to those of Student's t, because the noise is estimated from the runs.

    Args:
        x_by_group: x of the further runs of each group, (inputs, n).
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
    """Simulate `STUDIES` studies of one group, with its existing and some further runs, and fit all forms to each.
    Return one of the laws of each study, drawn at random by the weights of the forms in it.

    Args:
        truth: index of the fit that studies are simulated from.
        x: x of the further runs, (inputs, n).
    """
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
    """Return -d log y / d log x of a law of one input, at x."""
    ends = law.log_predict(np.array([[x / 1.01, x * 1.01]]))
    return float((ends[0] - ends[1]) / np.log(1.01**2))


def log_x_of(law: DrawnLaw, y: float, first: float) -> float:
    """Return the log of the x at which a falling law of one input reaches y. The search begins at x = `first`; NaN if y
    is reached there already or nowhere up to `FAR`² times `first`."""
    log_x = np.linspace(np.log(first), np.log(first * FAR**2), GRID)
    gap = np.minimum.accumulate(law.log_predict(np.exp(log_x)[None])) - np.log(y)
    return _first_zero(log_x, gap) if np.isfinite(gap).all() and gap[0] > 0 else float("nan")


def log_crossing(one: DrawnLaw, other: DrawnLaw, low: float, high: float) -> float:
    """Return the log of the first x between `low` and `high` where two laws of one input cross; NaN without one."""
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
    """Return the (N, D), model size and number of samples, at which the law L = E + A N^-alpha + B D^-beta gives the
    least loss for `compute` = `flop_per` · N · D."""
    p = law.natural()
    product = compute / flop_per
    with np.errstate(all="ignore"):
        log_n = (np.log(p["alpha"] * p["A"] / (p["beta"] * p["B"])) + p["beta"] * np.log(product)) / (
            p["alpha"] + p["beta"]
        )
        return float(np.exp(log_n)), float(product / np.exp(log_n))
