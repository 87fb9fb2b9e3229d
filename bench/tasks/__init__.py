"""Evaluations of trained models (few-shot probes, fine-tuning, …), one file each, which exports a `Task` as `TASK`."""
