"""Images that are drawn."""
