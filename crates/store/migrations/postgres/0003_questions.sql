-- One index for each set of filters that a list can have, with the place last: a page is read from where it begins to where it
-- ends, however rare or common what is asked for may be.
CREATE INDEX jangar_runs_of_kind ON jangar_runs (kind, place);
CREATE INDEX jangar_runs_of_subject ON jangar_runs (kind, subject, place);
CREATE INDEX jangar_runs_of_subject_by_phase ON jangar_runs (kind, subject, phase, place);
CREATE INDEX jangar_runs_listed_by_subject_and_phase ON jangar_runs (kind, namespace, subject, phase, place);

-- The words with what runs are filtered by among them, so that a common word and a rare filter are looked up at once. Such a mark
-- begins with a character that no word has. The cost is far above the true one, so that it is looked up and never computed
-- for every run of the table.
CREATE FUNCTION jangar_run_marks (search TSVECTOR, kind TEXT, namespace TEXT, phase TEXT, subject TEXT, parent TEXT) RETURNS TSVECTOR
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE COST 10000 AS $$
BEGIN
    RETURN search || array_to_tsvector(ARRAY[
        '§k' || left(kind, 300), '§n' || left(namespace, 300), '§p' || left(phase, 300), '§s' || left(subject, 300),
        '§r' || left(coalesce(parent, ''), 300)
    ]);
END
$$;
-- Without a list of what is still to be sorted in, which every search would have to read to its end.
CREATE INDEX jangar_runs_by_mark ON jangar_runs
    USING GIN (jangar_run_marks(search, kind, namespace, phase, subject, parent)) WITH (fastupdate = off);
