"""What an attempt that ran out of memory leaves for the next."""

from __future__ import annotations

from bench.core.record import MicroBatch
from bench.core.spec import Recipe
from bench.train.trainer import MICRO_BATCH_HINT as FILE
from bench.train.trainer import load_micro_batch_hint, save_micro_batch_hint
from tests.train.test_loop import trainer


def test_the_smallest_micro_batch_of_all_attempts_counts(tmp_path):
    attempts = [tmp_path / name for name in ("001", "002", "003")]
    assert load_micro_batch_hint(attempts) is None
    for attempt, images in zip(attempts, (16, 4, 8), strict=True):
        attempt.mkdir()
        save_micro_batch_hint(attempt, images)
    assert load_micro_batch_hint(attempts) == 4 and load_micro_batch_hint(attempts[::2]) == 8


def test_a_changed_byte_is_noticed_wherever_it_is(tmp_path):
    save_micro_batch_hint(tmp_path, 8)
    whole = (tmp_path / FILE).read_bytes()
    for place in range(len(whole)):
        (tmp_path / FILE).write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert load_micro_batch_hint([tmp_path]) in (None, 8)
    (tmp_path / FILE).write_bytes(whole[:-5])
    assert load_micro_batch_hint([tmp_path]) is None


def test_training_goes_on_with_it_and_says_so_once(tmp_path):
    made = trainer(tmp_path, recipe=Recipe(batch=16, warmup_images=64))
    for images in (32, 8, 8, 16):
        made.limit_micro_batch(images)
    assert made.train_step.micro_batch == 8
    assert made.progress.micro_batches == [MicroBatch(work=0, images=8)]
    made.drive()
    assert made.progress.micro_batches == [MicroBatch(work=0, images=8)]
