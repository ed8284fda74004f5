-- One index for each set of filters that a list can have, with the place last: a page is read from where it begins to where it
-- ends, however rare or common what is asked for may be.
CREATE INDEX jangar_runs_of_kind ON jangar_runs (kind, place);
CREATE INDEX jangar_runs_of_subject ON jangar_runs (kind, subject, place);
CREATE INDEX jangar_runs_of_subject_by_phase ON jangar_runs (kind, subject, phase, place);
CREATE INDEX jangar_runs_listed_by_subject_and_phase ON jangar_runs (kind, namespace, subject, phase, place);

-- The words anew, with what runs are filtered by among them, so that a common word and a rare filter are looked up at once. Such
-- a mark begins with a character that no word has, and its value is in hexadecimal digits, which are never split. Each
-- word is there once, so that where in the text it was need not be kept; what is left out by that is room for longer beginnings.
DROP TRIGGER jangar_run_words_added;
DROP TRIGGER jangar_run_words_changed;
DROP TRIGGER jangar_run_words_removed;
DROP TABLE jangar_run_words;
CREATE VIEW jangar_run_marks AS SELECT place, words || ' §k' || hex(kind) || ' §n' || hex(namespace) || ' §p' || hex(phase)
    || ' §s' || hex(subject) || ' §r' || hex(coalesce(parent, '')) AS words FROM jangar_runs;
CREATE VIRTUAL TABLE jangar_run_words USING fts5 (
    words, content = 'jangar_run_marks', content_rowid = 'place', tokenize = 'ascii', prefix = '3 4 5 6 7 8 9 10 11 12 13 14 15 16', detail = 'none'
);
INSERT INTO jangar_run_words (rowid, words) SELECT place, words FROM jangar_run_marks ORDER BY place;
CREATE TRIGGER jangar_run_words_added AFTER INSERT ON jangar_runs BEGIN
    INSERT INTO jangar_run_words (rowid, words) SELECT place, words FROM jangar_run_marks WHERE place = new.place;
END;
-- What is taken out has to be what was put in, so it is read before the change.
CREATE TRIGGER jangar_run_words_changing BEFORE UPDATE ON jangar_runs BEGIN
    INSERT INTO jangar_run_words (jangar_run_words, rowid, words)
        SELECT 'delete', place, words FROM jangar_run_marks WHERE place = old.place;
END;
CREATE TRIGGER jangar_run_words_changed AFTER UPDATE ON jangar_runs BEGIN
    INSERT INTO jangar_run_words (rowid, words) SELECT place, words FROM jangar_run_marks WHERE place = new.place;
END;
CREATE TRIGGER jangar_run_words_removed BEFORE DELETE ON jangar_runs BEGIN
    INSERT INTO jangar_run_words (jangar_run_words, rowid, words)
        SELECT 'delete', place, words FROM jangar_run_marks WHERE place = old.place;
END;
