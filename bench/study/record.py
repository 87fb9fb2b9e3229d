"""The result of a finished cell (a training run with its evaluations) as frozen data: one `Record`. Only
`bench.store.records` writes and reads it.

Units: times in seconds, memory in bytes, compute in FLOP (2 per multiply-add) or MAC, as each name says; dates in UTC,
ISO 8601. A value that is missing, or does not apply, is None, never 0. A horizon is a budget at which a cell is
evaluated. The horizons of a cell share one training (the trunk); each has its own cool-down (a branch from the trunk),
in which the learning rate falls to zero.
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
UNKNOWN = "unknown"  # stands for the kind of a data set, or the family of a model, if that is not known


@dataclass(frozen=True, kw_only=True, slots=True)
class Operations:
    """A number of MACs (multiply-accumulates), or of FLOPs, counted by two conventions.

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
        """Return both counts multiplied by a whole number. Counts that are whole numbers stay exact."""
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
        """The sum of the seconds of all purposes; None if nothing was timed."""
        known = [s for s in (self.train, self.evaluate, self.save, self.wait) if s is not None]
        return sum(known) if known else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """One number that a task measured.

    Attributes:
        task, data, metric: for example "fewshot", "fashion-mnist", "accuracy".
        value: the score, in [0, 1] for accuracies.
        stderr: standard error of `value` from the choice of test images, with the few-shot sample held fixed.
        num_test: number of test images that were scored.
        num_classes: number of classes in the test set.
        chance: the value that guessing reaches.
        shots: labelled images per class of the probe; None where it does not apply.
        draw: index of the few-shot sample (a random choice of labelled images); None where it does not apply.
        detail: further facts (the chosen ridge strength, …), as JSON types. "correct": which test images were
            classified correctly, packed by `bench.store.prediction_bits`. "group": the group of tasks that the task is
            one of. "num_duplicates", "value_without_duplicates": number of test images that are copies of training
            images, and the score without these. "num_support": number of labelled images that a few-shot score used.
            "same_images": True if all few-shot samples hold the same images."""

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
    """What a score measures: the fields of `Score` except value, stderr and detail. Runs share these objects."""

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
"""Field values -> the `Scored` object, or tuple of such objects, that all scores with these values share, because a
study of 10,000 runs has two million scores."""
MOST_KNOWN = 100_000  # entries of `_KNOWN`, beyond which it is cleared: unusual records would fill the memory


class Scores(Sequence[Score]):
    """The scores of a record, stored as columns, which take a tenth of the memory of `Score` objects. Each access to a
    score makes a new `Score` object.

    Attributes:
        of: what each score measures; all runs with the same evaluations share one tuple object.
        values, errors: `value` and `stderr` of each score, float64; NaN stands for None.
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
        """Return the scores from their JSON objects in a record.

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
        """Return the given scores, stored as columns."""
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
    """Return a tuple of `Scored`, one for each tuple of field values in `of`. Values that an earlier record had give
    the same object again, which saves memory."""
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
        images_trained: number of images trained on: the budget rounded to whole batches.
        unique_images: number of different images among those trained on.
        epochs: number of passes over the training set.
        steps: number of optimizer steps.
        batch: images per step.
        train_flops: FLOPs of a training to this horizon alone: the part shared with others, and the cool-down.
        spent_images, spent_flops: images and FLOPs of the work that was done for this horizon only, without the work
            that earlier horizons had needed already.
        seconds: "train": seconds of a training to this horizon alone, like `train_flops`; "evaluate": seconds of this
            evaluation; "save" and "wait": seconds since the previous horizon was evaluated.
        images_per_second, flops_per_second: throughput of training; dense FLOPs.
        utilisation: FLOP/s (dense FLOPs of the architecture) as a fraction of the peak of all ranks, in [0, 1].
        core_days: devices × days of `seconds.train`.
        final_train_loss: mean training loss of the last steps, in nats.
        smaller_batches: "evaluate" or "finetune" -> images per batch that fitted, if memory ran out in that evaluation.
        scores: all scores, in the order in which they were evaluated.
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
    """The training loss at points (numbers of images) that were fixed in advance, in the order in which the work was
    done. Each tuple has one entry per point.

    Attributes:
        images: number of images seen since the start of the training.
        losses: mean loss since the previous point, in nats.
        horizons: the horizon in whose cool-down the point lies; None in the training that all horizons share.
    """

    images: tuple[int, ...]
    losses: tuple[float, ...]
    horizons: tuple[int | None, ...]

    def parts(self) -> list[tuple[int | None, list[int], list[float]]]:
        """Return (horizon of a cool-down or None for the shared training, images, losses) for each segment. Segments
        after the first begin with the last earlier point of the shared training, so that the drawn curves connect."""
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
        params_body: number of parameters except those of the head and of embeddings.
        num_features: width of the features that are the head's input.
        forward_macs: multiply-accumulates of the forward pass of one image.
        train_flops_per_image: FLOPs of the forward and backward pass of one image.
        fingerprint: digest of the model's code (`bench.study.fingerprint`); None if none was taken.
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
        num_images, num_val: number of images in the training split and in the test split.
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
    """A reduction of the micro-batch, the images in one forward and backward pass: memory ran out after `work` training
    steps, and training continued with `images` images."""

    work: int
    images: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Execution:
    """How a cell was run.

    Attributes:
        device: "cpu" or "cuda".
        accelerators: number of accelerators; 0 on a CPU.
        ranks: number of processes that trained together.
        sharding: how weights are distributed among ranks (`Recipe.sharding`); None for one rank.
        threads: CPU threads of each rank.
        dtype: precision of the network's forward pass, "float32" or "bfloat16".
        evaluation_dtype: precision of the features and logits that were evaluated; None if there were none, or in an
            old record without this field, whose features were float32.
        compile_mode: mode of torch.compile; "off" if the network was not compiled; None if nothing was trained.
        attention_kernels: kernels of fused attention, the fastest first; () if torch chose them, or had no choice.
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
    """Electrical energy of all attempts at a cell, in joules; work that was repeated counts each time. A killed attempt
    is counted until shortly before its end.

    Attributes:
        processor_joules: the cell's part of the energy of processors and memory (RAPL), in proportion to the processor
            time that the cell used; None if it was not measured.
        accelerator_joules: the whole energy of the cell's GPUs (NVML); None if it was not measured.
        co2_grams_per_kwh: CO2 per kilowatt-hour of the electricity, in grams, as the user gave it; None if not given.
    """

    processor_joules: float | None = None
    accelerator_joules: float | None = None
    co2_grams_per_kwh: float | None = None

    @property
    def joules(self) -> float:
        """The sum of the measured energies; 0 if none was measured."""
        return (self.processor_joules or 0.0) + (self.accelerator_joules or 0.0)

    @property
    def co2_grams(self) -> float | None:
        """Grams of CO2 of the measured energy; None if the user did not give `co2_grams_per_kwh`."""
        return None if self.co2_grams_per_kwh is None else self.joules / 3.6e6 * self.co2_grams_per_kwh


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """The cost of a cell. Work that was repeated after an interruption counts once.

    Attributes:
        seconds: seconds of all attempts together.
        spent_images: number of images trained on, in the shared training and in all cool-downs.
        spent_flops: FLOPs of the training on these images.
        core_days: devices × days of the work (of a training: `seconds.train`).
        devices: number of accelerators, or of CPU threads, of all ranks.
        image_wait_seconds: the part of `seconds.train` in which steps waited for images that were still being read (by
            rank 0 if there are several); None if nothing was trained.
        peak_memory_bytes: peak memory of the accelerator, or of the process if there is no accelerator.
        peak_flops_per_second: peak FLOP/s of one rank's device, from which `Horizon.utilisation` is computed.
        peak_source: how that peak is known.
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
    """One attempt to run a cell. `outcome`: "complete", "interrupted", "failed", "unknown", "running" (the attempt was
    killed before it could write another outcome), …. `started`, `ended`: times in UTC; None if not known."""

    outcome: str
    started: str | None = None
    ended: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """Median, quartiles and extremes of `n` values, in the unit of the values; they are None for n = 0."""

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
        scan_images_per_second: throughput in the scan of batch sizes, which preceded the windows; None if not scanned.
        limit: why no larger batch was tried; None if that is not known.
        optimizer: description of what the optimizer does in a training step; None for inference.
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
    """Percentiles of the duration of `n` single calls, in milliseconds; the device is synchronised after each call."""

    batch: int
    p50_ms: float | None
    p90_ms: float | None
    p99_ms: float | None
    min_ms: float | None
    max_ms: float | None
    n: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """The speed of a small reference model, which in every cell is measured by turns with the cell's own model. If it
    differs between two cells, the machine was in another state."""

    model: str
    image_size: int
    channels: int
    num_classes: int
    throughput: Throughput


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Peak memory in bytes: of the process so far, or of one call, as an accelerator's allocator counts it. `how` says
    in words which of these it is."""

    how: str
    process_peak_bytes: int | None = None
    inference_peak_bytes: int | None = None
    training_peak_bytes: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LargestBatch:
    """The largest batches that fit into memory, in images.

    Attributes:
        inference, training: batch predicted from shapes for a memory of `budget_bytes`; `how` names the rule.
        found_inference: batch found by trying, on a device with `device_bytes`; None if it was not tried.
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
    """The result of the job `speed`: the speed of one model at one input size. If the model does not fit into memory,
    only `revision` and `conditions` are set."""

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
    """How a contender (one library's way to train a model) trains; `tools.race.settings` explains the values.

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
    """A short trial of settings that differ from the best so far.

    Attributes:
        over_best: speed with these settings divided by the speed with the best so far; None if they do not work.
        kept: whether these settings became the best.
        reason: why these settings do not work; None if they do.
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
        windows: throughput of each window of time in images per second, those of the processes' first start first.
        images_per_second: spread of the windows' throughputs.
        share_of_peak: FLOP/s (median throughput, dense FLOPs) as a fraction of the device's peak, in [0, 1].
        same_function: whether the contender's model computes the same as this project's from the same weights.
        losses: losses of the first steps, in nats.
        settings: the settings with which the contender was measured; None in older records.
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
    """The result of the job `peers`: training speeds of contenders, which train in turns on the same batches.

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


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of a job (what a worker does with a cell). `reason`: why `status` is not "complete"; None if it is."""

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
    """A result together with the identity of its cell and its origin.

    Attributes:
        suite: name of the suite that the cell was run for.
        cell_id: the cell's identity; see `bench.study.cell.cell_id`.
        directory: name of the cell's folder below `cells/`.
        revisions: "model", "recipe", "job:NAME", "data:NAME", "task:NAME", … -> revision of that code, which is part
            of the cell's identity.
        attempts: all attempts at the cell, oldest first.
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
