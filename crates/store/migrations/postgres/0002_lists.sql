-- Lists of one kind in one namespace, in whatever phase or of whomever: what the control plane asks for.
CREATE INDEX jangar_runs_listed ON jangar_runs (kind, namespace, place);
CREATE INDEX jangar_runs_listed_by_phase ON jangar_runs (kind, namespace, phase, place);
CREATE INDEX jangar_runs_listed_by_subject ON jangar_runs (kind, namespace, subject, place);

-- The number of the last step that a version has to know in order to use the schema after this one; absent: this one.
ALTER TABLE jangar_migrations ADD COLUMN usable_by BIGINT;
