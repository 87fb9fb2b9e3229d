"""The result of a finished cell as frozen data: one `Record`. Only `bench.store.records` writes and reads it.

Units: times in seconds, memory in bytes, compute in FLOP (2 per multiply-add) or MAC, as each name says; dates in UTC,
ISO 8601. A value that is missing, or does not apply, is None, never 0.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Literal, NamedTuple, overload

from bench.core.environment import Environment
from bench.study.cell import Cell

Status = Literal["complete", "diverged", "oom", "failed"]
"""How a cell ended. "diverged" (a loss or weight was not finite) and "oom" (memory ran out) also count as results."""

STATUSES: tuple[Status, ...] = ("complete", "diverged", "oom", "failed")
UNKNOWN = "unknown"  # the kind of a data set, or the family of a model, that is not known


@dataclass(frozen=True, kw_only=True, slots=True)
class Operations:
    """A number of MACs, or of FLOPs, counted by two conventions.

    Attributes:
        dense: counts every tap (kernel element) of a convolution.
        paper: leaves out taps on zero padding, as the tables of the ViT paper do (arXiv 2010.11929).
    """

    dense: float | None = None
    paper: float | None = None

    def of(self, convention: str) -> float | None:
        """Return the count by the convention "dense" or "paper"."""
        return self.paper if convention == "paper" else self.dense

    def times(self, factor: int) -> Operations:
        """Return both counts multiplied by a whole number; exact if they are whole numbers."""
        dense, paper = (None if count is None else count * factor for count in (self.dense, self.paper))
        return Operations(dense=dense, paper=paper)


@dataclass(frozen=True, kw_only=True, slots=True)
class Seconds:
    """Wall-clock seconds by purpose: training steps, evaluation, writing checkpoints, waiting (data, compilation)."""

    train: float | None = None
    evaluate: float | None = None
    save: float | None = None
    wait: float | None = None

    @property
    def total(self) -> float | None:
        """The sum over all purposes; None if nothing was timed."""
        known = [s for s in (self.train, self.evaluate, self.save, self.wait) if s is not None]
        return sum(known) if known else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """One number that a task measured.

    Attributes:
        task, data, metric: for example "fewshot", "fashion-mnist", "accuracy".
        value: the score, in [0, 1] for accuracies.
        stderr: standard error over the test images, for this one few-shot sample.
        num_test: number of test images that were scored.
        num_classes: number of classes of the test set.
        chance: the value that guessing reaches.
        shots: labelled images per class of the probe; None where it does not apply.
        draw: index of the few-shot sample (a random choice of labelled images); None where it does not apply.
        detail: further facts (the chosen ridge strength, …), as JSON types. "correct": which test images were
            classified correctly, packed by `bench.store.prediction_bits`. "group": the task's group of tasks.
            "num_duplicates", "value_without_duplicates": test images that are copies of training images, the score
            without these. "num_support": labelled images that a few-shot score used. "same_images": True if all samples
    are the same."""

    task: str
    data: str
    metric: str
    value: float | None
    stderr: float | None
    num_test: int
    num_classes: int | None
    chance: float | None
    shots: int | None = None
    draw: int | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


class Scored(NamedTuple):
    """What a score measures: fields of `Score` except value, stderr and detail. Runs of a study share these objects."""

    task: str
    data: str
    metric: str
    num_test: int
    num_classes: int | None
    chance: float | None
    shots: int | None
    draw: int | None


_OF_SCORED = itemgetter(*Scored._fields)
_KNOWN: dict[tuple[Any, ...], Any] = {}
"""All `Scored` objects, and tuples of them, that were read so far. They are shared, because a study of 10,000 runs has
two million scores."""
MOST_KNOWN = 100_000  # entries of `_KNOWN`, beyond which it is cleared: unusual records would fill the memory


class Scores(Sequence[Score]):
    """The scores of a record, stored as columns, which take a tenth of the memory of `Score` objects. A `Score` is made
    each time that one is accessed.

    Attributes:
        of: what each score measures; the same tuple object for all runs with the same evaluations.
        values, errors: `value` and `stderr` of each score; NaN stands for None.
        details: `detail` of each score; None if no score has any.
    """

    __slots__ = ("details", "errors", "of", "values")

    def __init__(
        self,
        of: tuple[Scored, ...],
        values: Iterable[float | None],
        errors: Iterable[float | None],
        details: tuple[Mapping[str, Any], ...] | None,
    ) -> None:
        self.of, self.details = of, details
        self.values = array("d", [math.nan if value is None else value for value in values])
        self.errors = array("d", [math.nan if error is None else error for error in errors])

    @classmethod
    def of_json(cls, items: Sequence[Mapping[str, Any]]) -> Scores:
        """Build scores from the JSON objects of a record.

        Raises:
            LookupError, TypeError: a field is missing or of the wrong type.
        """
        try:
            of = [_OF_SCORED(item) for item in items]
        except KeyError:  # "shots" and "draw" may be missing
            of = [_OF_SCORED({"shots": None, "draw": None} | dict(item)) for item in items]
        details = [item.get("detail") or {} for item in items]
        return cls(
            _known(of),
            [item["value"] for item in items],
            [item["stderr"] for item in items],
            tuple(details) if any(details) else None,
        )

    @classmethod
    def of_all(cls, scores: Iterable[Score]) -> Scores:
        """Return `scores` as columns."""
        if isinstance(scores, cls):
            return scores
        scores = tuple(scores)
        of = [(s.task, s.data, s.metric, s.num_test, s.num_classes, s.chance, s.shots, s.draw) for s in scores]
        details = tuple(s.detail for s in scores) if any(s.detail for s in scores) else None
        return cls(_known(of), [s.value for s in scores], [s.stderr for s in scores], details)

    def _at(self, place: int) -> Score:
        value, error = self.values[place], self.errors[place]
        return Score(
            **self.of[place]._asdict(),
            value=None if math.isnan(value) else value,
            stderr=None if math.isnan(error) else error,
            detail=self.details[place] if self.details else {},
        )

    @overload
    def __getitem__(self, place: int) -> Score: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Score, ...]: ...
    def __getitem__(self, place: int | slice) -> Score | tuple[Score, ...]:
        if isinstance(place, slice):
            return tuple(self._at(at) for at in range(len(self))[place])
        return self._at(range(len(self))[place])

    def __len__(self) -> int:
        return len(self.of)

    def __iter__(self) -> Iterator[Score]:
        return map(self._at, range(len(self)))

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, Scores | tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.of, self.values.tobytes()))

    def __repr__(self) -> str:
        return repr(tuple(self))


def _known(of: Sequence[tuple[Any, ...]]) -> tuple[Scored, ...]:
    """Return a tuple of `Scored` for the given field values; equal ones are the same object as in earlier records."""
    if len(_KNOWN) > MOST_KNOWN:
        _KNOWN.clear()
    together = tuple(of)
    if (known := _KNOWN.get(together)) is None:
        known = tuple(_KNOWN.setdefault(one, Scored(*one)) for one in together)
        _KNOWN[known] = known
    return known  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True, slots=True)
class Horizon:
    """The evaluation of a cell at one horizon (budget).

    Attributes:
        images_seen: the budget that was asked for, in images.
        images_trained: images trained on: the budget rounded to whole batches.
        unique_images: number of different images among them.
        epochs: passes over the training set.
        steps: optimizer steps.
        batch: images per step.
        train_flops: FLOPs of a training to this horizon alone: the trunk up to its branch, and the branch.
        spent_images, spent_flops: work done for this horizon in addition to that of the horizons before it.
        seconds: train: for a training to this horizon alone, like `train_flops`; evaluate: of its evaluation; save,
            wait: since the horizon before it was evaluated.
        images_per_second, flops_per_second: throughput of training; dense FLOPs.
        utilisation: FLOP/s (dense FLOPs of the architecture) as a fraction of the peak of all ranks, in [0, 1].
        core_days: devices × days of `seconds.train`.
        final_train_loss: mean training loss of the last steps, in nats.
        smaller_batches: "evaluate" or "finetune" -> images per batch that fitted, if memory ran out in that evaluation.
        scores: all scores, in the order of the evaluation.
    """

    images_seen: int
    images_trained: int | None = None
    unique_images: int | None = None
    epochs: float | None = None
    steps: int | None = None
    batch: int | None = None
    train_flops: Operations = Operations()
    spent_images: int | None = None
    spent_flops: Operations = Operations()
    seconds: Seconds = Seconds()
    images_per_second: float | None = None
    flops_per_second: float | None = None
    utilisation: float | None = None
    core_days: float | None = None
    final_train_loss: float | None = None
    smaller_batches: Mapping[str, int] = field(default_factory=dict)
    scores: Sequence[Score] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class LearningCurve:
    """Mean training losses between points that were fixed in advance, in the order in which the work was done. Each
    tuple has one entry per point.

    Attributes:
        images: images seen since the start of the training.
        losses: mean loss since the previous point, in nats.
        horizons: the budget whose cool-down the point is part of; None on the trunk, which horizons share.
    """

    images: tuple[int, ...]
    losses: tuple[float, ...]
    horizons: tuple[int | None, ...]

    def parts(self) -> list[tuple[int | None, list[int], list[float]]]:
        """Return (horizon or None, images, losses) for each segment. A segment after the first begins with the last
        point of the trunk before it, so that the curves connect."""
        parts: list[tuple[int | None, list[int], list[float]]] = []
        trunk: list[tuple[int, float]] = []
        for images, loss, horizon in zip(self.images, self.losses, self.horizons, strict=True):
            if not parts or parts[-1][0] != horizon:
                before = [point for point in trunk if point[0] <= images]
                left = before[-1:] if horizon is not None or trunk else []
                parts.append((horizon, [x for x, _ in left], [y for _, y in left]))
            parts[-1][1].append(images)
            parts[-1][2].append(loss)
            if horizon is None:
                trunk.append((images, loss))
        return parts


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFacts:
    """Facts about the network that was built.

    Attributes:
        params: number of parameters.
        params_body: number of parameters without head and embeddings.
        num_features: width of the features that feed the head.
        forward_macs: multiply-accumulates of the forward pass of one image.
        train_flops_per_image: FLOPs of forward and backward pass.
        fingerprint: digest of the model's code (bench.study.fingerprint); None if none was taken.
    """

    name: str
    family: str = UNKNOWN
    params: int | None = None
    params_body: int | None = None
    num_features: int | None = None
    forward_macs: Operations = Operations()
    train_flops_per_image: Operations = Operations()
    fingerprint: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class DataFacts:
    """Facts about the upstream (pre-training) data.

    Attributes:
        kind: "photographs", "handwriting" or "rendered".
        num_images, num_val: number of images in the training and the test split.
        content_hash: digest of the training images and labels.
        image_size: pixels per side of the model's input.
        channels: channels of the model's input.
    """

    name: str
    kind: str = UNKNOWN
    revision: int | None = None
    num_images: int | None = None
    num_classes: int | None = None
    content_hash: str | None = None
    image_size: int | None = None
    channels: int | None = None
    num_val: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class MicroBatch:
    """A reduction of the micro-batch: memory ran out after `work` training steps, and training continued with `images`
    images per forward pass."""

    work: int
    images: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Execution:
    """How a cell was run.

    Attributes:
        device: "cpu" or "cuda".
        accelerators: number of accelerators; 0 on a CPU.
        ranks: number of processes that trained together.
        sharding: how weights are distributed among ranks; None for one rank.
        threads: CPU threads of each rank.
        dtype: precision of the network's forward pass, "float32" or "bfloat16".
        evaluation_dtype: precision of the features and logits that were evaluated; None if there were none, or if the
            record is older: then features were float32.
        compile_mode: torch.compile's mode; "off" if the network was not compiled; None if nothing was trained.
        attention_kernels: kernels of fused attention, the fastest first; empty if torch chose, or had no choice.
        micro_batches: every reduction of the micro-batch because memory ran out.
    """

    device: str
    accelerators: int | None = None
    ranks: int | None = None
    sharding: str | None = None
    threads: int | None = None
    dtype: str | None = None
    evaluation_dtype: str | None = None
    compile_mode: str | None = None
    attention_kernels: tuple[str, ...] = ()
    micro_batches: tuple[MicroBatch, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Energy:
    """Electrical energy of a cell in joules, over all attempts, repeated work included. A killed attempt is counted
    until shortly before its end.

    Attributes:
        processor_joules: energy of processors and memory (RAPL), in proportion to the processor time that the cell
            used; None if it was not measured.
        accelerator_joules: whole energy of its GPUs (NVML); None if it was not measured.
        co2_grams_per_kwh: CO2 intensity of the electricity, as the user gave it.
    """

    processor_joules: float | None = None
    accelerator_joules: float | None = None
    co2_grams_per_kwh: float | None = None

    @property
    def joules(self) -> float:
        """The sum of all measured energies."""
        return (self.processor_joules or 0.0) + (self.accelerator_joules or 0.0)

    @property
    def co2_grams(self) -> float | None:
        """Grams of CO2; None if the user gave no intensity."""
        return None if self.co2_grams_per_kwh is None else self.joules / 3.6e6 * self.co2_grams_per_kwh


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """The cost of a cell. Work that was repeated after an interruption counts once.

    Attributes:
        seconds: seconds over all attempts.
        spent_images: images trained on, on the trunk and on all branches.
        spent_flops: FLOPs of training on them.
        core_days: devices × days.
        devices: number of accelerators, or of CPU threads, of all ranks.
        image_wait_seconds: the part of `seconds.train` in which steps waited for images that were still being read (by
            rank 0 if there are several); None if nothing was trained.
        peak_memory_bytes: peak memory of the accelerator, or of the process if there is none.
        peak_flops_per_second: peak of one rank's device, to which `Horizon.utilisation` refers.
        peak_source: where that peak is from.
        energy: None if the hardware does not measure it, or if ranks were on several machines.
        processor_seconds: processor time of rank 0's process, over all attempts; None if an attempt was killed, or if
            other processes did the work.
    """

    seconds: Seconds = Seconds()
    spent_images: int | None = None
    spent_flops: Operations = Operations()
    core_days: float | None = None
    devices: int | None = None
    image_wait_seconds: float | None = None
    peak_memory_bytes: int | None = None
    peak_flops_per_second: float | None = None
    peak_source: str | None = None
    energy: Energy | None = None
    processor_seconds: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One attempt at a cell. `outcome`: "complete", "interrupted", "failed", "running" (it was killed), "unknown",
    …."""

    outcome: str
    started: str | None = None
    ended: str | None = None


# -- results of the jobs `speed` and `peers` ---------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """Median, quartiles and extremes of `n` values, in the unit of the values; all None for n = 0."""

    median: float | None = None
    q1: float | None = None
    q3: float | None = None
    min: float | None = None
    max: float | None = None
    n: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Throughput:
    """The throughput of one workload, measured in several windows of time.

    Attributes:
        batch: images per call.
        images_per_second: spread of the windows' throughputs.
        windows: throughput of each window, in images per second.
        first_call_seconds: seconds of the first call, including allocation, compilation and autotuning.
        utilisation: FLOP/s (median throughput, dense FLOPs) as a fraction of the device's peak, in [0, 1].
        scan_images_per_second: throughput while batch sizes were scanned, before the windows.
        limit: why no larger batch was tried.
        optimizer: description of what the optimizer does in a training step.
    """

    batch: int
    images_per_second: Spread
    windows: tuple[float, ...]
    calls_per_window: int
    first_call_seconds: float | None = None
    utilisation: float | None = None
    scan_images_per_second: float | None = None
    limit: str | None = None
    optimizer: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Latency:
    """Percentiles of the latency of `n` single calls in milliseconds; the device is synchronised after each call."""

    batch: int
    p50_ms: float | None
    p90_ms: float | None
    p99_ms: float | None
    min_ms: float | None
    max_ms: float | None
    n: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """A small model that is measured in turns with every cell's own: where its speed differs, the machine's did."""

    model: str
    image_size: int
    channels: int
    num_classes: int
    throughput: Throughput


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Peak memory in bytes: of the process so far, or of one call as an accelerator's allocator counts it. `how` says
    in words which."""

    how: str
    process_peak_bytes: int | None = None
    inference_peak_bytes: int | None = None
    training_peak_bytes: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LargestBatch:
    """The largest batches that fit into memory, in images.

    Attributes:
        inference, training: predicted from shapes for a memory of `budget_bytes`; `how` names the rule.
        found_inference: found by trying, in a memory of `device_bytes`; None if it was not tried.
    """

    inference: int | None
    training: int | None
    budget_bytes: int
    how: str
    found_inference: int | None = None
    device_bytes: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Conditions:
    """Settings that a measured speed depends on, beside versions and `Execution`.

    Attributes:
        device: name of the processor or accelerator.
        windows, window_seconds: number and length of the windows of each workload.
        slowest_call_seconds: if a call took longer than this, no larger batch was tried.
        load_before: the system's load average before the measurement.
    """

    device: str
    float32_matmul_precision: str
    allow_tf32: bool
    cudnn_benchmark: bool
    windows: int
    window_seconds: float
    slowest_call_seconds: float
    load_before: float | None = None
    cudnn: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedResult:
    """The measured speed of one model at one input size. If the model does not fit into memory, only `revision` and
    `conditions` are set."""

    revision: int
    conditions: Conditions
    inference: Throughput | None = None
    batches: tuple[Throughput, ...] = ()
    compiled: Throughput | None = None
    training: Throughput | None = None
    latency: Latency | None = None
    reference: Reference | None = None
    memory: Memory | None = None
    largest_batch: LargestBatch | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PeerSettings:
    """How a contender trains; `tools.race.settings` explains the values.

    Attributes:
        layout: memory layout of images and of convolutions' weights.
        dtype: precision of matrix products; weights are float32 in all settings.
        attention: torch's fused kernel, or separate matrix products and a softmax.
        compiled: which part of the network is compiled.
        optimizer: the implementation of AdamW and of gradient clipping.
    """

    layout: str = "contiguous"
    dtype: str = "float32"
    attention: str = "fused"
    compiled: str = "off"
    optimizer: str = "default"


@dataclass(frozen=True, kw_only=True, slots=True)
class PeerTrial:
    """A short trial of other settings.

    Attributes:
        over_best: their speed divided by that of the best settings so far; None if they do not work.
        kept: whether they became the best settings.
        reason: why they do not work.
    """

    settings: PeerSettings
    over_best: float | None
    kept: bool
    reason: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ContenderResult:
    """The speed of one contender: one library's way to train a model, compared with others.

    Attributes:
        package: the library's package; None for this project's own training step.
        left_out: why the contender did not take part; None if it did.
        windows: throughput of each window in images per second, all windows of the first start first.
        images_per_second: spread of the windows' throughputs.
        share_of_peak: FLOP/s (median throughput, dense FLOPs) as a fraction of the device's peak, in [0, 1].
        same_function: whether it computes the same as this project's model from the same weights.
        losses: losses of the first steps, in nats.
        settings: the settings with which it was measured; None in older records.
        trials: the trials by which these settings were chosen.
    """

    name: str
    package: str | None
    left_out: str | None
    windows: tuple[float, ...]
    images_per_second: Spread
    share_of_peak: float | None = None
    same_function: bool | None = None
    dtype: str | None = None
    params: int | None = None
    first_call_seconds: float | None = None
    call_seconds: float | None = None
    losses: tuple[float, ...] = ()
    settings: PeerSettings | None = None
    trials: tuple[PeerTrial, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class PeersResult:
    """A comparison of training speeds: contenders train in turns on the same batches.

    Attributes:
        peaks: dtype -> peak FLOP/s of the device.
        starts: how many times all processes were started, each time for the same number of windows; None in records
            with one start.
    """

    revision: int
    batch: int
    window_seconds: float
    peaks: Mapping[str, float]
    contenders: tuple[ContenderResult, ...]
    starts: int | None = None


# -- the whole ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of a job on its cell. `reason`: why `status` is not "complete"."""

    status: Status
    reason: str | None = None
    model: ModelFacts
    data: DataFacts
    execution: Execution
    cost: Cost
    horizons: tuple[Horizon, ...] = ()
    curve: LearningCurve | None = None
    speed: SpeedResult | None = None
    peers: PeersResult | None = None


@dataclass(frozen=True, kw_only=True)
class Record(Result):
    """A result with the identity of its cell and its origin.

    Attributes:
        suite: the suite that the cell was run for.
        cell_id: the cell's identity, see `bench.study.cell.cell_id`.
        directory: name of the cell's folder below `cells/`.
        revisions: revisions of what the cell uses, which are part of its identity: "model", "recipe", "job:NAME",
            "data:NAME", "task:NAME".
        attempts: all attempts, oldest first.
        source: the publication that the result is quoted from; None for a cell that was run.
    """

    suite: str
    cell_id: str
    directory: str
    cell: Cell
    revisions: Mapping[str, int]
    environment: Environment
    attempts: tuple[Attempt, ...] = ()
    source: str | None = None
