"""The result of a finished cell as frozen data: one `Record`, written and read by `bench.store.records` alone.

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
"""How a cell ended. "diverged" (a loss or weight was not finite) and "oom" (memory ran out) are results too."""

STATUSES: tuple[Status, ...] = ("complete", "diverged", "oom", "failed")
UNKNOWN = "unknown"  # kind of a data set, family of a model


@dataclass(frozen=True, kw_only=True, slots=True)
class Operations:
    """A number of MACs, or of FLOPs, under both conventions of counting.

    Attributes:
        dense: every tap of a convolution counts.
        paper: taps on zero padding are left out, as in the tables of the ViT paper (arXiv 2010.11929).
    """

    dense: float | None = None
    paper: float | None = None

    def of(self, convention: str) -> float | None:
        """The count under "dense" or "paper"."""
        return self.paper if convention == "paper" else self.dense

    def times(self, factor: int) -> Operations:
        """Both counts times a whole number; exact where they are whole."""
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
        """The sum of all purposes; None where nothing was timed."""
        known = [s for s in (self.train, self.evaluate, self.save, self.wait) if s is not None]
        return sum(known) if known else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """One number that a task found.

    Attributes:
        task, data, metric: for example "fewshot", "fashion-mnist", "accuracy".
        value: the score, in [0, 1] for accuracies.
        stderr: standard error over the test images of this one draw.
        num_test: test images that were scored.
        num_classes: classes of the test set.
        chance: the value that guessing reaches.
        shots: labelled images per class of the probe; None where it does not apply.
        draw: which few-shot draw; None where it does not apply.
        detail: what else a reader may want (the ridge strength chosen, …), JSON types. "correct": which test images
            were right, as `bench.store.prediction_bits` packs it. "group": the group of tasks that this one belongs to.
            "num_duplicates", "value_without_duplicates": copies of training images among the test images.
            "num_support": labelled images that a few-shot score used. "same_images": True where all draws use the same.
    """

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
    """What a score is of, without its value: as of `Score`. Runs of a study share these."""

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
"""What scores read so far are of, one by one and together, each held once: a study of 10,000 runs has two million."""
MOST_KNOWN = 100_000  # of these; strange records would fill the memory


class Scores(Sequence[Score]):
    """The scores of a record that was read, as columns: a tenth of the memory of so many `Score`s, each of which is
    made when it is asked for.

    Attributes:
        of: what each is of; the same object in all runs that are evaluated alike.
        values, errors: of each, as `Score.value` and `Score.stderr`; NaN where that is None.
        details: of each; None where none has any.
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
        """From JSON types.

        Raises:
            LookupError, TypeError: a field is missing or of the wrong type.
        """
        try:
            of = [_OF_SCORED(item) for item in items]
        except KeyError:  # those that may be missing
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
        """The same scores as columns."""
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
    """What scores are of, in the objects that an earlier record used for the same."""
    if len(_KNOWN) > MOST_KNOWN:
        _KNOWN.clear()
    together = tuple(of)
    if (known := _KNOWN.get(together)) is None:
        known = tuple(_KNOWN.setdefault(one, Scored(*one)) for one in together)
        _KNOWN[known] = known
    return known  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True, slots=True)
class Horizon:
    """A cell evaluated at one budget.

    Attributes:
        images_seen: the budget that was asked for, in images.
        images_trained: whole batches of it.
        unique_images: different ones among them.
        epochs: passes over the training set.
        steps, batch: optimizer steps, of so many images.
        train_flops: FLOPs of a training to this horizon alone: the trunk up to its branch, and the branch.
        spent_images, spent_flops: what was done for this horizon beyond the horizon before it.
        seconds: train: of a training to this horizon alone, as `train_flops`; evaluate: its evaluation; save, wait:
            since the horizon before it was read.
        images_per_second, flops_per_second: in training, dense FLOPs.
        utilisation: share of the peak of all ranks, by the architecture's FLOPs, in [0, 1].
        core_days: devices × days of `seconds.train`.
        final_train_loss: mean of the last steps, nats.
        smaller_batches: "evaluate", "finetune": images at a time that fitted, where memory ran out in an evaluation.
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
    """Mean training loss between points fixed in advance, in the order of the work: one entry per point in each tuple.

    Attributes:
        images: seen from the start of the training.
        losses: nats.
        horizons: the budget that a cool-down is for; None on a trunk that horizons share.
    """

    images: tuple[int, ...]
    losses: tuple[float, ...]
    horizons: tuple[int | None, ...]

    def parts(self) -> list[tuple[int | None, list[int], list[float]]]:
        """(horizon or None, images, losses) of each stretch; a cool-down starts where it left its trunk."""
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
    """The network that was built.

    Attributes:
        params: all parameters.
        params_body: without head and embeddings.
        num_features: width of what feeds the head.
        forward_macs: multiply-accumulates of one image.
        train_flops_per_image: forward and backward.
        fingerprint: digest of the model's code (bench.study.fingerprint); None where none was taken.
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
    """The upstream data: its training and its test split.

    Attributes:
        kind: "photographs", "handwriting", "rendered".
        num_images, num_val: in the training and the test split.
        content_hash: digest of the training images and labels.
        image_size, channels: of the model's input, pixels per side.
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
    """Memory ran out in training, which went on after `work` steps with `images` at a time."""

    work: int
    images: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Execution:
    """How a cell was run.

    Attributes:
        device: "cpu" or "cuda".
        accelerators: how many; 0 on a CPU.
        ranks: processes that trained together.
        sharding: how weights lie among ranks; None for one rank.
        threads: CPU threads of each rank.
        dtype: precision of the network's forward pass, "float32" or "bfloat16".
        evaluation_dtype: of the features and logits that were judged; None where there were none, or the record is
            older: then features were float32.
        compile_mode: torch.compile's mode; "off" where the network was not compiled; None where nothing was trained.
        attention_kernels: fused attention, the fastest first; empty where torch chose, or there was nothing to choose.
        micro_batches: where memory ran out.
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
    """Electrical energy of a cell in joules, over all attempts, repeated work included; a killed attempt counts until
    shortly before its end.

    Attributes:
        processor_joules: energy of processors and memory (RAPL), the share of the processor time that the cell used.
        accelerator_joules: energy of its GPUs (NVML), whole. Each is None where it was not measured.
        co2_grams_per_kwh: intensity of the electricity, as the user gave it.
    """

    processor_joules: float | None = None
    accelerator_joules: float | None = None
    co2_grams_per_kwh: float | None = None

    @property
    def joules(self) -> float:
        """All that was measured."""
        return (self.processor_joules or 0.0) + (self.accelerator_joules or 0.0)

    @property
    def co2_grams(self) -> float | None:
        """Grams of CO2; None where no intensity was given."""
        return None if self.co2_grams_per_kwh is None else self.joules / 3.6e6 * self.co2_grams_per_kwh


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """The cost of a cell, repeated work included once.

    Attributes:
        seconds: over all attempts.
        spent_images: every image that a step was taken on, trunk and branches.
        spent_flops: what these took.
        core_days: devices × days.
        devices: accelerators, or CPU threads, of all ranks.
        image_wait_seconds: of `seconds.train`, in which steps waited for images that were still being read (of several
            ranks, the first's); None where nothing was trained.
        peak_memory_bytes: most memory of the accelerator, or else of the process.
        peak_flops_per_second: peak of one rank's device, by which utilisation is a share.
        peak_source: where it is from.
        energy: None where the hardware tells of none, or ranks were on several machines.
        processor_seconds: that rank 0's process used, over all attempts; None where one was killed, or where other
            processes did the work.
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
    """One try at a cell. `outcome`: "complete", "interrupted", "failed", "running" (killed), "unknown", …."""

    outcome: str
    started: str | None = None
    ended: str | None = None


# -- what the jobs `speed` and `peers` find ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """Median, quartiles and extremes of `n` values, in their unit. All None where there are none."""

    median: float | None = None
    q1: float | None = None
    q3: float | None = None
    min: float | None = None
    max: float | None = None
    n: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Throughput:
    """Windows of one workload.

    Attributes:
        batch: images per call.
        windows: images per second of each.
        images_per_second: their spread.
        first_call_seconds: allocation, compilation and autotuning included.
        utilisation: share of the peak, by the median and dense FLOPs, in [0, 1].
        scan_images_per_second: while batch sizes were scanned, before the windows.
        limit: why no larger batch was tried.
        optimizer: the optimizer's part of a training step.
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
    """Milliseconds of `n` single calls, each waited for."""

    batch: int
    p50_ms: float | None
    p90_ms: float | None
    p99_ms: float | None
    min_ms: float | None
    max_ms: float | None
    n: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """The small model that takes its turn in every cell: where its speed differs, the machine did."""

    model: str
    image_size: int
    channels: int
    num_classes: int
    throughput: Throughput


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Peak bytes: of the process so far, or, by an accelerator's allocator, of one call. `how` says which."""

    how: str
    process_peak_bytes: int | None = None
    inference_peak_bytes: int | None = None
    training_peak_bytes: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LargestBatch:
    """Images that fit at once.

    Attributes:
        inference, training: predicted from shapes for `budget_bytes`; `how` names the rule.
        found_inference: found by trying, in `device_bytes` of memory; None where it was not tried.
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
        load_before: the system's load average.
        windows, window_seconds: of each workload.
        slowest_call_seconds: beyond which no larger batch was tried.
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
    """One model measured at one input size. All but the first two are None where not even the model fits."""

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
    """How a contender trains, in words that `bench.execute.peers.settings` explains.

    Attributes:
        layout: how images and convolutions' weights lie in memory.
        dtype: precision of products; weights are float32 everywhere.
        attention: torch's fused kernel, or plain products and a softmax.
        compiled: what of the network is.
        optimizer: the implementation of AdamW and of clipping.
    """

    layout: str = "contiguous"
    dtype: str = "float32"
    attention: str = "fused"
    compiled: str = "off"
    optimizer: str = "default"


@dataclass(frozen=True, kw_only=True, slots=True)
class PeerTrial:
    """A short trial of other settings. over_best: speed over that of the best settings so far; None where they do not
    work, for a `reason`. kept: whether they became the best."""

    settings: PeerSettings
    over_best: float | None
    kept: bool
    reason: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ContenderResult:
    """One way to train the model, beside others.

    Attributes:
        package: the library's package; None for this project's own step.
        left_out: why it did not take part, or None.
        windows: images per second of each round, start after start.
        images_per_second: their spread.
        share_of_peak: utilisation by the median and dense FLOPs, in [0, 1].
        losses: losses of the first steps, nats.
        same_function: whether it computes what this project's model does, from the same weights.
        settings: the settings with which it raced; None in older records.
        trials: the trials by which they were chosen.
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
    """A race: contenders in turns on the same batches.

    Attributes:
        peaks: dtype -> FLOP/s of the device.
        starts: how often all processes began anew, each time for as many windows; None in records of one start.
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
    """The result of a job on its cell. `reason`: why it is not complete."""

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
    """A result with its identity and its origin.

    Attributes:
        suite: the suite that ran it.
        cell_id: `bench.study.cell.cell_id`.
        directory: the cell's folder below `cells/`.
        revisions: of what the cell uses, part of its identity: "model", "recipe", "job:NAME", "data:NAME", "task:NAME".
        attempts: oldest first.
        source: the publication that it is quoted from; None for what was run here.
    """

    suite: str
    cell_id: str
    directory: str
    cell: Cell
    revisions: Mapping[str, int]
    environment: Environment
    attempts: tuple[Attempt, ...] = ()
    source: str | None = None
