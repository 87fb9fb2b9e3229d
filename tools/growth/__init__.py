"""How time and memory grow with what the project is given."""
