-- Words in the order of lists, as nearly as Postgres can have them. The list is divided into pieces of some thousand runs, and
-- each word of a run is kept with the number of its piece before it. So words are looked up in one piece after the other, the newest
-- first, until a page is full: what that costs is a little for each piece without them, and no more for a common word than for a rare one.
--
-- A run belongs to the piece with the greatest beginning that is not after it. Only the newest run of all begins a piece, so
-- that a run never changes from one to another.
CREATE TABLE jangar_pieces (
    number BIGINT PRIMARY KEY,
    -- The place of its first run; zero for the oldest, which takes whatever is older as well.
    begins BIGINT NOT NULL UNIQUE,
    -- How many runs were put there.
    runs BIGINT NOT NULL
);
CREATE TABLE jangar_piece_words (
    place BIGINT PRIMARY KEY REFERENCES jangar_runs (place) ON DELETE CASCADE,
    piece BIGINT NOT NULL,
    words TSVECTOR NOT NULL
);

CREATE FUNCTION jangar_words_in_piece (piece BIGINT, marks TSVECTOR) RETURNS TSVECTOR LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT array_to_tsvector(ARRAY(SELECT piece || '§' || word FROM unnest(tsvector_to_array(marks)) AS word))
$$;

CREATE FUNCTION jangar_put_in_piece () RETURNS TRIGGER LANGUAGE plpgsql AS $$
DECLARE
    -- The setting is for tests, which have few runs.
    most CONSTANT BIGINT := coalesce(nullif(current_setting('jangar.piece_runs', TRUE), '')::BIGINT, 4096);
    marks CONSTANT TSVECTOR := jangar_run_marks(NEW.search, NEW.kind, NEW.namespace, NEW.phase, NEW.subject, NEW.parent);
    here jangar_pieces%ROWTYPE;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        UPDATE jangar_piece_words SET words = jangar_words_in_piece(piece, marks) WHERE place = NEW.place;
        RETURN NULL;
    END IF;
    -- One at a time, so that nobody puts a run into a piece that ends meanwhile. Versions that know this step take this lock before
    -- any other: it is `PIECES` in write.rs.
    PERFORM pg_advisory_xact_lock(7665529431056842754);
    SELECT * INTO STRICT here FROM jangar_pieces WHERE begins <= NEW.place ORDER BY begins DESC LIMIT 1;
    IF here.runs >= most AND NOT EXISTS (SELECT FROM jangar_runs WHERE place > NEW.place) THEN
        INSERT INTO jangar_pieces (number, begins, runs) SELECT max(number) + 1, NEW.place, 1 FROM jangar_pieces RETURNING * INTO here;
    ELSE
        UPDATE jangar_pieces SET runs = runs + 1 WHERE number = here.number;
    END IF;
    INSERT INTO jangar_piece_words (place, piece, words) VALUES (NEW.place, here.number, jangar_words_in_piece(here.number, marks));
    RETURN NULL;
END
$$;
-- Both keep it up to date whoever writes, also a version that does not know this step. From here on nobody else writes runs until all is in.
CREATE TRIGGER jangar_runs_put_in_piece AFTER INSERT ON jangar_runs FOR EACH ROW EXECUTE FUNCTION jangar_put_in_piece();
CREATE TRIGGER jangar_runs_changed_in_piece AFTER UPDATE OF words, kind, namespace, phase, subject, parent ON jangar_runs
    FOR EACH ROW EXECUTE FUNCTION jangar_put_in_piece();

INSERT INTO jangar_pieces (number, begins, runs) VALUES (1, 0, 0);
INSERT INTO jangar_pieces (number, begins, runs)
    SELECT number, min(place), count(*) FROM (SELECT place, (row_number() OVER (ORDER BY place) - 1) / 4096 + 1 AS number FROM jangar_runs) AS numbered
    GROUP BY number ORDER BY number
    ON CONFLICT (number) DO UPDATE SET runs = excluded.runs;
INSERT INTO jangar_piece_words (place, piece, words)
    SELECT place, piece, jangar_words_in_piece(piece, jangar_run_marks(search, kind, namespace, phase, subject, parent))
    FROM (SELECT *, (row_number() OVER (ORDER BY place) - 1) / 4096 + 1 AS piece FROM jangar_runs) AS numbered
    ORDER BY place;
-- Without a list of what is still to be sorted in, which every search would have to read to its end.
CREATE INDEX jangar_piece_words_by_word ON jangar_piece_words USING GIN (words) WITH (fastupdate = off);
ANALYZE jangar_piece_words;
