"""How the population changes: low-rank algebra, mutations, crossovers and survivor selection."""
