"""The same training, done by other libraries: what they are, how their users run them, and how they are raced."""
