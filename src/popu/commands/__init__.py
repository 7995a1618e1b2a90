"""The commands of `popu`, a file a kind: what a line takes (`add`), and what it does."""
