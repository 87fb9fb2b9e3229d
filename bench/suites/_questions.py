"""Lists of questions (files of `bench/questions/`), by name, that suites ask. A suite without `questions` asks all that
there are."""

OF_FAMILIES = (
    "gap-over-images",
    "gap-over-compute",
    "best-family-at-equal-compute",
    "compute-to-match",
    "crossing-over-compute",
    "hybrid-advantage-shrinks",
    "hybrids-stop-helping",
    "crossing-over-images",
    "saturated",
    "compute-for-a-target",
    "images-for-a-target",
    "next-run",
    "order-of-families-over-compute",
    "order-of-families-over-images",
    "more-compute-helps",
    "more-images-help",
    "beats-untrained",
    "beats-raw-pixels",
    "resolution-gain",
)
"""Questions of studies that compare families of models over compute or over images."""
