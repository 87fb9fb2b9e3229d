"""Questions that the published tables answer."""
