"""Statistics of scores: intervals, variances between seeds, paired and corrected verdicts, frontiers. No torch."""
