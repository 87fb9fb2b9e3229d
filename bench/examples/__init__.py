"""Study files, and a notebook that runs one."""
