"""Questions that the tables of published networks answer."""
