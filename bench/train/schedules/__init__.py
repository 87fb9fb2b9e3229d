"""How the learning rate runs and how budgets share a training, one file each."""
