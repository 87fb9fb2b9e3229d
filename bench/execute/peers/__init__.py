"""The same training in other libraries: their models, typical settings and timing."""
