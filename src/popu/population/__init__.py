"""Who is in the population: members, their adapter files, ratings, matches and lineage."""
