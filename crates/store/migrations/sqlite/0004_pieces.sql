-- What Postgres needs in order to find words in the order of lists. SQLite does so by itself; the step is there so that both count alike.
SELECT 1;
