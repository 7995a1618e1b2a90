"""What a run has to survive: kills at any moment (`torture`)."""
