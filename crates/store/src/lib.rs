//! What Jangar remembers of runs that are gone: Postgres, or SQLite on a laptop.
